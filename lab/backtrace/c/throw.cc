// Threads throw and catch exceptions while signals take stack traces.
#include <csignal>
#include <cstdio>
#include <execinfo.h>
#include <stdexcept>
#include <sys/time.h>
#include <thread>
#include <unistd.h>
#include <vector>

static volatile int traces;

static void handler(int) {
	void *frames[64];
	if (backtrace(frames, 64) > 2)
		traces = traces + 1;
}

struct counter {
	int &n;
	~counter() { n++; }
};

__attribute__((noinline)) static int descend(int depth, int &destroyed) {
	counter c{destroyed};
	if (depth == 0)
		throw std::runtime_error("bottom");
	return descend(depth - 1, destroyed) + 1;
}

int main() {
	void *frames[1];
	backtrace(frames, 1);
	signal(SIGPROF, handler);
	itimerval timer{{0, 500}, {0, 500}};
	setitimer(ITIMER_PROF, &timer, nullptr);
	int sums[4] = {};
	std::vector<std::thread> threads;
	for (int &sum : sums)
		threads.emplace_back([&sum] {
			for (int i = 0; i < 2000; i++)
				try {
					descend(20, sum);
				} catch (const std::exception &) {
				}
		});
	for (auto &t : threads)
		t.join();
	for (int i = 0; traces == 0 && i < 100000000; i++)
		;
	std::printf("%d %d %d %d, traces: %s\n", sums[0], sums[1], sums[2], sums[3], traces > 0 ? "some" : "none");
}
