/* Tells as JSON what a started program finds: its words, environment, process group, blocked signals, whether the
 * loader treats it as privileged, and (unless WITHOUT_HIP) how much memory HIP shows it. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#ifndef WITHOUT_HIP
#include "hip_api.h"
#endif

extern char **environ;
const char *early_value(void) __attribute__((weak));

static void print_text(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putchar('\\');
		putchar(*text);
	}
	putchar('"');
}

static void print_list(char **words)
{
	putchar('[');
	for (char **word = words; *word; word++) {
		if (word != words)
			putchar(',');
		print_text(*word);
	}
	putchar(']');
}

int main(int argc, char **argv)
{
	size_t total = 0;
	sigset_t blocked;

	(void)argc;
#ifndef WITHOUT_HIP
	size_t left = 0;

	hipMemGetInfo(&left, &total);
#endif
	sigprocmask(SIG_BLOCK, NULL, &blocked);
	printf("{\"words\":");
	print_list(argv);
	printf(",\"environ\":");
	print_list(environ);
	printf(",\"total\":%zu,\"secure\":%lu,\"leads\":%d,\"blocked\":%d,\"early\":", total, getauxval(AT_SECURE),
	       getpgrp() == getpid(), sigismember(&blocked, SIGUSR1));
	print_text(early_value ? early_value() : "");
	puts("}");
	return 0;
}
