/* A plugin whose frame size is set by the compiler's command line. */
void call(void (*function)(const char *), const char *place);
void call(void (*function)(const char *), const char *place) {
	volatile char bytes[SIZE];
	bytes[0] = 1;
	function(place);
	(void)bytes[0];
}
