/* Declarations shared by the files of libsframe-backtrace. */
#ifndef SFRAME_BACKTRACE_H
#define SFRAME_BACKTRACE_H

#if defined(__s390x__) && !defined(__clang__)
#pragma GCC target("packed-stack") /* a trace takes 400 bytes less stack */
#endif

#define _GNU_SOURCE
#include "sframe_process.h"

/*
 * Names. The shared library defines functions under the names of other libraries, and finds the originals with dlsym.
 * The archive is for programs linked with --wrap: a static program still needs libgcc's functions, for exceptions.
 */
#define JOIN_NAMES(a, b) a##b
#define JOIN(a, b) JOIN_NAMES(a, b)
#define QUOTE(text) #text
#define TEXT(text) QUOTE(text)
#ifdef SFRAME_BACKTRACE_WRAP
#define EXPORTED(name) JOIN(__wrap_, name)
#define NEXT(name) JOIN(__real_, name)
#define NEXT_OF(type, name, ...) extern type NEXT(name)(__VA_ARGS__) __attribute__((weak));
#define NEEDS_NEXT_OF(type, name, ...) extern type NEXT(name)(__VA_ARGS__);
#else
#define EXPORTED(name) name
#define NEXT(name) JOIN(next_, name)
#define NEXT_OF(type, name, ...) static type (*NEXT(name))(__VA_ARGS__);
#define NEEDS_NEXT_OF(type, name, ...) NEXT_OF(type, name, __VA_ARGS__)
#define SET_NEXT(type, name, ...) sframe_set_function(&NEXT(name), file, TEXT(name));
#endif
#define PUBLIC __attribute__((visibility("default")))
#define INNER __attribute__((visibility("hidden")))

/* backtrace.c */
/* What to do at a frame that no section describes, as set by SFRAME_BACKTRACE. */
enum sframe_mode { BY_DWARF, BY_FRAME_POINTER, BY_SFRAME_ONLY };
INNER extern enum sframe_mode sframe_otherwise;
/* sframe_ready prepares the library unless the constructor, start, has done so. */
INNER void sframe_ready(void);
/* The first words of the library's contexts and cursors. Those of other libraries start with pointers, which never
 * equal these words. */
INNER extern const uint64_t sframe_magic[2];
/* sframe_set_function sets a function pointer, if it is NULL, to the function with this name in a file. */
INNER void sframe_set_function(void *function, void *file, const char *name);

/* A walk of this thread's stack. */
struct walk {
	struct sfw_process process;
	struct sfw_cache cache;
	struct sfw_space space;
	struct sfw_section section; /* of the last frame that no cached row described */
	uint8_t assumed; /* the first stack is a window of memory: its bounds are unknown */
	uint8_t signal;  /* the walk has reached code that a signal interrupted */
};
/* sframe_start_walk prepares a walk. If signal is set, sp may have any value; mapped was found by earlier probes. */
INNER void sframe_start_walk(struct walk *w, uint64_t sp, uint8_t signal, struct sfw_range mapped);
INNER enum sfw_how sframe_next(struct walk *w, struct sfw_regs *regs, struct sfw_frame *frame);
/* sframe_may_leave returns whether libgcc, or libunwind, may continue at the frame where a walk has ended. */
INNER int sframe_may_leave(const struct walk *w, const struct sfw_regs *regs, int to_libgcc);

/* libunwind.c */
INNER void sframe_find_cursors(void);
INNER int sframe_can_guess(void);
INNER int sframe_guess(void **array, int size, void *pc);

/* files.c */
INNER void sframe_set_path(const char *path);
INNER const struct sfw_separates *sframe_separates(void);
INNER int sframe_add_new_files(void *address);
INNER enum sfw_how sframe_section(void *context, uint64_t pc, struct sfw_section *s);
INNER extern const char *sframe_statistics; /* SFRAME_BACKTRACE_STATS, or NULL */
INNER void sframe_count(uint64_t pc, int by_sframe);
INNER void sframe_say(const char *a, const char *b, const char *c);

#endif
