/* C functions of calls.ml. */
#include <caml/callback.h>
#include <caml/memory.h>
#include <caml/mlvalues.h>
#include <stdlib.h>

value allocate(value n) {
	char *volatile space = malloc((size_t)Long_val(n));
	free(space);
	return Val_long(Long_val(n) + 1);
}

value call_back(value f, value n) {
	CAMLparam2(f, n);
	CAMLlocal1(result);
	free(malloc(100));
	result = caml_callback(f, n);
	CAMLreturn(result);
}
