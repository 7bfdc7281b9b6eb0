// throws N: exceptions through frames with destructors, N times.
#include <cstdlib>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

struct Guard {
	std::string s;
	~Guard() { s += "x"; }
};

__attribute__((noinline)) static int deep(int n) {
	Guard g;
	if (n == 0)
		throw std::runtime_error("deep");
	return deep(n - 1) + int(g.s.size()) + 1;
}

int main(int argc, char **argv) {
	long sum = 0;
	std::map<std::string, int> words;
	for (int n = argc > 1 ? atoi(argv[1]) : 1; n > 0; n--) {
		for (int i = 0; i < 10; i++)
			try {
				try {
					deep(i);
				} catch (const std::logic_error &) {
					sum--;
				}
			} catch (const std::exception &e) {
				sum += e.what()[0];
				words[std::to_string(i)]++;
			}
		try {
			std::vector<int>().at(3);
		} catch (...) {
			try {
				throw;
			} catch (const std::out_of_range &) {
				sum++;
			}
		}
	}
	std::cout << sum << " " << words.size() << std::endl;
}
