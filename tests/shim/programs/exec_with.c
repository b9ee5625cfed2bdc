/* Starts a program with exactly these environment entries, even two of one name: exec_with <entry>... -- <program> <word>... */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int end = 1;

	while (end < argc && strcmp(argv[end], "--") != 0)
		end++;
	if (end + 1 >= argc)
		return 2;
	argv[end] = NULL;
	execve(argv[end + 1], argv + end + 1, argv + 1);
	perror(argv[end + 1]);
	return 1;
}
