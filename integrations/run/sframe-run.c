/*
 * sframe-run: runs a program so that its stacks are walked with .sframe, without changing any of its files.
 *
 * prepare.sh, which is part of this program, writes the sections, and prints which variables to set. It runs in a
 * child. Then this process executes the program. A shell could not: shells drop and add variables, change signals, and
 * print errors before their first command, for example in a deleted directory. If the shell fails, the program runs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FAILED = 125, NOT_RUN, NOT_FOUND };

extern char script[] __attribute__((visibility("hidden")));
__asm__(".pushsection .rodata\nscript: .incbin \"integrations/run/prepare.sh\"\n.byte 0\n.popsection");

static const char usage[] =
	"usage: sframe-run [--also PATH]... [--preload LIBRARY]... [--learn] [--infer] [-q] [-v] PROGRAM [ARGUMENT...]\n";
static const char help[] =
	"\n"
	"  --also PATH        also covers a file, or the programs and libraries below a directory: plugins\n"
	"  --preload LIBRARY  also preloads LIBRARY, which then does not run in sframe-run itself\n"
	"  --learn            lets the next run cover all files that the program and its children load in this run\n"
	"  --infer            also covers code without CFI, such as hand-written assembly, by rows from its instructions\n"
	"  -q                 does not print how many files have sections\n"
	"  -v                 prints each file, and why it has no section\n"
	"\n"
	"Writes the sections of the files that PROGRAM loads to ${XDG_CACHE_HOME:-~/.cache}/cfi2sframe, and runs PROGRAM\n"
	"with libsframe-backtrace.so preloaded. sframe-run(1) has the details.\n";

/* say prints a message. It is lost if standard error cannot be written. */
static void say(const char *a, const char *b, const char *c) { dprintf(2, "sframe-run: %s%s%s\n", a, b, c); }

__attribute__((noreturn)) static void fail(const char *a, const char *b, const char *c, int status) {
	say(a, b, c);
	exit(status);
}

__attribute__((noreturn)) static void refuse(void) {
	fputs(usage, stderr);
	exit(FAILED);
}

static void *checked(void *memory) {
	if (memory == NULL)
		fail("no memory", "", "", FAILED);
	return memory;
}

static char *join(const char *a, const char *b, const char *c) {
	char *s = checked(malloc(strlen(a) + strlen(b) + strlen(c) + 1));
	return strcat(strcat(strcpy(s, a), b), c);
}

/* What prepare.sh reads. */
static char *also = "", *preload, *infer = "", *quiet = "", *verbose = "";

/* The program's environment, with space for variables that are set. */
enum { MAX_SET = 8 };
static char **environment;

static void copy_environment(void) {
	size_t n = 0;
	while (environ[n] != NULL)
		n++;
	environment = checked(malloc((n + MAX_SET + 1) * sizeof *environment));
	memcpy(environment, environ, (n + 1) * sizeof *environment);
}

/* set sets a variable, NAME=VALUE. */
static void set(char *variable) {
	size_t size = strcspn(variable, "=") + 1;
	char **to = environment;
	for (char **from = environment; *from != NULL; from++)
		if (strncmp(*from, variable, size) != 0)
			*to++ = *from;
	*to++ = variable;
	*to = NULL;
}

/* directory returns the directory of this program. AT_EXECFN does not need /proc. */
static char *directory(void) {
	char *path = realpath((const char *)getauxval(AT_EXECFN), NULL);
	if (path == NULL)
		return "";
	*strrchr(path, '/') = 0;
	return path;
}

/* start starts the shell, with few variables, because others could change what its commands do. It returns a
 * descriptor for the shell's output, or -1. */
static int start(int n, char **arguments, const char *logs, pid_t *child) {
	static const char *const copied[] = {
		"ASAN_OPTIONS", "CFI2SFRAME", "HOME", "PWD", "SFRAME_BACKTRACE_LIBRARY", "SFRAME_PATH", "XDG_CACHE_HOME"};
	enum { NUM_COPIED = sizeof copied / sizeof *copied };
	const char *path = getenv("PATH"), *libraries = getenv("LD_LIBRARY_PATH");
	path = path != NULL ? path : "/bin:/usr/bin"; /* as in execvp */
	char *variables[NUM_COPIED + 16], **to = variables;
	for (size_t i = 0; i < NUM_COPIED; i++)
		if (getenv(copied[i]) != NULL)
			*to++ = join(copied[i], "=", getenv(copied[i]));
	*to++ = join("PATH=/usr/bin:/bin:", path, "");
	*to++ = join("search=", path, ":"); /* a shell ignores an empty last field */
	*to++ = join("libraries=", libraries != NULL ? libraries : "", "");
	*to++ = join("here=", directory(), "");
	*to++ = join("also=", also, "");
	*to++ = join("preload=", preload, "");
	*to++ = join("infer=", infer, "");
	*to++ = join("quiet=", quiet, "");
	*to++ = join("verbose=", verbose, "");
	*to++ = join("learned=", logs, "");
	*to++ = "separator=\036"; /* of fields */
	*to++ = "LC_ALL=C";
	*to = NULL;
	char **list = checked(calloc((size_t)n + 5, sizeof *list));
	list[0] = "sh";
	list[1] = "-c";
	list[2] = script;
	list[3] = "sframe-run";
	memcpy(list + 4, arguments, (size_t)n * sizeof *list);

	int ends[2];
	if (pipe2(ends, O_CLOEXEC) != 0)
		return -1;
	sigset_t none, pipe_child;
	sigemptyset(&none);
	sigemptyset(&pipe_child);
	sigaddset(&pipe_child, SIGPIPE);
	sigaddset(&pipe_child, SIGCHLD);
	posix_spawnattr_t how;
	posix_spawnattr_init(&how);
	posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&how, &none);
	posix_spawnattr_setsigdefault(&how, &pipe_child);
	/* The shell's own errors are not printed. 3 is for those of cfi2sframe. */
	posix_spawn_file_actions_t files;
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, ends[1], 1);
	posix_spawn_file_actions_adddup2(&files, 2, 3);
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addclosefrom_np(&files, 4);
	int error = posix_spawn(child, "/bin/sh", &files, &how, list, variables);
	close(ends[1]);
	if (error == 0)
		return ends[0];
	errno = error;
	return -1;
}

/* prepare runs the shell, and does what it prints: lines that end with 0. It returns 0 if the program runs without the
 * library. */
static int prepare(int n, char **arguments, const char *logs) {
	static const char variable[] = "set ", message[] = "say ", status[] = "exit ";
	pid_t child;
	int fd = start(n, arguments, logs, &child), complete = 0;
	if (fd < 0) {
		say(arguments[0], " runs without the library: cannot start a shell: ", strerror(errno));
		return 0;
	}
	FILE *f = checked(fdopen(fd, "r"));
	char *line = NULL;
	for (size_t size = 0; getdelim(&line, &size, 0, f) > 0; line = NULL, size = 0)
		if (strncmp(line, variable, sizeof variable - 1) == 0)
			set(line + sizeof variable - 1);
		else if (strncmp(line, message, sizeof message - 1) == 0)
			say(line + sizeof message - 1, "", "");
		else if (strncmp(line, status, sizeof status - 1) == 0)
			exit(atoi(line + sizeof status - 1));
		else
			complete = strcmp(line, "run") == 0;
	fclose(f);
	waitpid(child, NULL, 0);
	if (!complete)
		say(arguments[0], " runs without the library: the shell failed", "");
	return complete;
}

/* The caller's signals. If SIGPIPE is ignored, messages do not end this process; if SIGCHLD is not, it can wait. */
static struct sigaction sigpipe, sigchld;

/* execute executes the program. */
__attribute__((noreturn)) static void execute(char **arguments, char **variables) {
	sigaction(SIGPIPE, &sigpipe, NULL);
	sigaction(SIGCHLD, &sigchld, NULL);
	execvpe(arguments[0], arguments, variables);
	if (errno == E2BIG) /* the variables take space */
		execvp(arguments[0], arguments);
	int status = errno == ENOENT ? NOT_FOUND : NOT_RUN;
	signal(SIGPIPE, SIG_IGN);
	fail(arguments[0], ": ", strerror(errno), status);
}

static pid_t program;

/* forward passes a signal on, unless the kernel sent it: then the program has it as well. */
static void forward(int number, siginfo_t *info, void *context) {
	(void)context;
	if (info->si_code <= 0)
		kill(program, number);
}

/* learn makes a child execute the program, with glibc's dynamic linker reporting what the program and its children
 * load, and returns in the child. Then this process covers these files. */
static void learn(int n, char **arguments) {
	static const int forwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
	const char *parent = getenv("TMPDIR");
	char *logs = join(parent != NULL && parent[0] != 0 ? parent : "/tmp", "/sframe-run.XXXXXX", "");
	if (mkdtemp(logs) == NULL || (logs = checked(realpath(logs, NULL)), program = fork()) < 0) {
		say("--learn has no effect: ", strerror(errno), "");
		rmdir(logs);
		return;
	}
	if (program == 0) {
		set("LD_DEBUG=files");
		set(join("LD_DEBUG_OUTPUT=", logs, "/log"));
		return;
	}
	struct sigaction action = {.sa_sigaction = forward, .sa_flags = SA_SIGINFO | SA_RESTART};
	for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++)
		sigaction(forwarded[i], &action, NULL);
	int status = 0;
	waitpid(program, &status, 0);
	for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++)
		signal(forwarded[i], SIG_DFL);
	prepare(n, arguments, logs);
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

int main(int argc, char **argv) {
	enum { ALSO, PRELOAD, LEARN, INFER, HELP };
	static const struct option options[] = {{"also", required_argument, NULL, ALSO},
		{"preload", required_argument, NULL, PRELOAD}, {"learn", no_argument, NULL, LEARN},
		{"infer", no_argument, NULL, INFER}, {"help", no_argument, NULL, HELP}, {NULL, 0, NULL, 0}};
	int learning = 0, num_closed = 0, fd;

	/* Descriptors that are closed are also closed for the program. No other file may have their numbers. */
	while ((fd = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0 && fd <= 2)
		num_closed++;
	int error = errno;
	if (fd >= 0)
		close(fd);
	sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, &sigpipe);
	sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL}, &sigchld);

	preload = getenv("LD_PRELOAD") != NULL ? getenv("LD_PRELOAD") : "";
	opterr = 0;
	for (int option; (option = getopt_long(argc, argv, "+hqv", options, NULL)) != -1;)
		switch (option) {
		case ALSO:
			if (access(optarg, F_OK) != 0)
				fail("--also: ", optarg, " does not exist", FAILED);
			if (strchr(optarg, '\n') != NULL)
				say("--also: ", optarg, " has a newline in its path, and is not covered");
			else
				also = join(also, optarg, "\n");
			break;
		case PRELOAD:
			preload = join(preload, preload[0] != 0 ? ":" : "", optarg);
			break;
		case LEARN:
			learning = 1;
			break;
		case INFER:
			infer = "1";
			break;
		case 'q':
			quiet = "1";
			break;
		case 'v':
			verbose = "1";
			break;
		case 'h':
		case HELP:
			printf("%s%s", usage, help);
			return 0;
		default:
			refuse();
		}
	if (optind >= argc)
		refuse();
	argv += optind;
	argc -= optind;
	copy_environment();
	if (fd < 0)
		say(argv[0], " runs without the library: cannot open /dev/null: ", strerror(error));
	else if (learning && num_closed > 0)
		say("--learn has no effect: a standard descriptor is closed", "", ""); /* the reports would have its number */
	else if (learning)
		learn(argc, argv);
	execute(argv, fd >= 0 && prepare(argc, argv, "") ? environment : environ);
}
