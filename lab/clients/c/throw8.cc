// Eight threads throw and catch exceptions.
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

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
	enum { THREADS = 8, THROWS = 2000, DEPTH = 20 };
	int sums[THREADS] = {};
	std::vector<std::thread> threads;
	for (int &sum : sums)
		threads.emplace_back([&sum] {
			for (int i = 0; i < THROWS; i++)
				try {
					descend(DEPTH, sum);
				} catch (const std::exception &) {
				}
		});
	for (auto &t : threads)
		t.join();
	for (int sum : sums)
		if (sum != THROWS * (DEPTH + 1))
			return 1;
	return 0;
}
