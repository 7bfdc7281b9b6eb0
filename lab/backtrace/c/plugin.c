/* A plugin whose frame size is set by the compiler's command line. It calls at_unload, if set, when it is unloaded. */
void call(void (*function)(const char *), const char *place);
void call(void (*function)(const char *), const char *place) {
	volatile char bytes[SIZE];
	bytes[0] = 1;
	function(place);
	(void)bytes[0];
}

extern void (*at_unload)(void);
void (*at_unload)(void);
__attribute__((destructor)) static void unload(void) {
	if (at_unload != 0)
		at_unload();
}
