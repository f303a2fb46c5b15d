/* A wall clock that fails, or never answers, on one thread of a program: preloaded, it stands before
 * the C library's. The file named by FAULTY_CLOCK says where and how: `actors fails`. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void stumble(int *fails)
{
	char here[17] = "", thread[17] = "", how[17] = "";
	const char *path = getenv("FAULTY_CLOCK");
	FILE *file = path ? fopen(path, "r") : NULL;

	if (!file)
		return;
	int words = fscanf(file, "%16s %16s", thread, how);
	fclose(file);
	prctl(PR_GET_NAME, here);
	if (words != 2 || strcmp(here, thread))
		return;
	while (!strcmp(how, "stops"))
		pause();
	*fails = !strcmp(how, "fails");
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
	int fails = 0;

	if (clock == CLOCK_REALTIME)
		stumble(&fails);
	if (fails) {
		errno = EINVAL;
		return -1;
	}
	return syscall(SYS_clock_gettime, clock, at);
}
