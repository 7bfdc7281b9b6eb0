// A program with exceptions through frames of all its objects.
#include "parts.h"

#include <cstdio>

// The other object has a strong one.
extern "C" __attribute__((weak, noinline)) int hook(int n) { return n * 1000; }

__attribute__((cold, noinline)) static void fail(const char *what, int got, int want)
{
	std::printf("%s: %d, %d was expected\n", what, got, want);
	throw std::logic_error(what);
}

static int thrower(int n)
{
	if (n > 2)
		throw n;
	return n;
}

// The branch is cold, so that it lands in .text.unlikely, out of the function.
__attribute__((noinline)) static int parts(int n)
{
	int sum = clamp(n, 0, 9);
	if (__builtin_expect(n > 1000, 0)) {
		std::string s = "large: " + std::to_string(n);
		std::puts(s.c_str());
		sum += missing((int)s.size());
		throw std::runtime_error(s);
	}
	return sum;
}

static void check(const char *what, int got, int want)
{
	if (got != want)
		fail(what, got, want);
}

// Dead code: --gc-sections takes it out.
int unused_one(int n) { return sum(std::vector<int>(n, n)) + clamp(n, 1, 2); }

int main()
{
	try {
		check("sum", sum(std::vector<int>{1, 2, 3}), 6);
		check("sum of strings", (int)sum(std::vector<std::string>{"a", "bc"}).size(), 3);
		check("two", two(7), 9);
		check("area", square_of(4), 16);
		check("hook", hook(5), 10);
		check("parts", parts(20), 9);
		check("by_hand", by_hand(41), 42);
		check("calls_back", calls_back(thrower, 2), 2);
		int caught = 0;
		try { calls_back(thrower, 3); } catch (int n) { caught += n; }
		try { square_of(-1); } catch (const std::range_error &) { caught += 10; }
		try { sum(std::vector<int>(101)); } catch (const std::length_error &) { caught += 100; }
		try { parts(1001); } catch (const std::runtime_error &) { caught += 1000; }
		check("exceptions", caught, 1113);
	} catch (const std::exception &e) {
		std::printf("failed: %s\n", e.what());
		return 1;
	}
	return 0;
}
