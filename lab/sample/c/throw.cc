// Throws exceptions through frames with destructors, sorts with a comparator, and formats: a C++ program for
// a profiler. Without exceptions for static programs: there libgcc finds the frames under a lock, and so _Unwind_Backtrace
// would wait for ever in a handler that has interrupted a throw.
#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

struct guard {
	std::string name;
	~guard() { count += name.size(); }
	static size_t count;
};
size_t guard::count;

__attribute__((noinline)) static int fall(int n) {
	guard g{"frame " + std::to_string(n)};
	if (n == 0) {
#ifdef NO_THROW
		return static_cast<int>(g.name.size());
#else
		throw std::runtime_error("bottom " + g.name);
#endif
	}
	return fall(n - 1) + 1;
}

int main() {
	std::map<std::string, int> seen;
	for (unsigned round = 0;; round++) {
		try {
			fall(static_cast<int>(round % 20));
		} catch (const std::exception &e) {
			seen[e.what()]++;
		}
		std::vector<std::string> words;
		for (unsigned i = 0; i < 50; i++) {
			std::ostringstream s;
			s << round * i % 97 << ' ' << 1.5 * i;
			words.push_back(s.str());
		}
		std::sort(words.begin(), words.end(), [](const std::string &a, const std::string &b) { return a > b; });
		if (words.front().empty())
			std::puts("");
	}
}
