/* Preloaded into a process, shifts its wall clock, and no other clock, by the seconds that stand as eight bytes in the
 * file CLOCK_OFFSET_FILE; a change counts at once. libfaketime (0.9.10) either shifts the monotonic clock too, which no
 * step of a real clock does, or fails Python's time.sleep with EINVAL. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CLOCK_OFFSET_FILE");
    int file = path ? open(path, O_RDONLY) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) offset = mapped;
    if (file >= 0) close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (!result && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
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
