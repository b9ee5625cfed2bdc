/* Opens the file that it is given, says so, and keeps it until it is killed. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc < 2 || open(argv[1], O_RDWR | O_CLOEXEC) < 0)
		return 1;
	puts("open");
	fflush(stdout);
	pause();
	return 0;
}
