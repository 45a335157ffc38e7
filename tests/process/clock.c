/* A wall clock that is wrong by HAULAGE_CLOCK_OFFSET seconds, for a program that it is preloaded into. The monotonic
   clock stays right, as on a host whose time service failed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long offset(void) {
    const char *given = getenv("HAULAGE_CLOCK_OFFSET");
    return given ? atol(given) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int returned = real(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += offset();
    return returned;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *stored) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (stored) *stored = exact.tv_sec;
    return exact.tv_sec;
}
