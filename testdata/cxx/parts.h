// What one.cc and two.cc have in common: code of which both objects have a copy, in
// sections of which the linker keeps one.
#include <stdexcept>
#include <string>
#include <vector>

template <typename T> __attribute__((noinline)) T sum(const std::vector<T> &v)
{
	T all{};
	for (const T &x : v)
		all += x;
	if (v.size() > 100)
		throw std::length_error("more than 100");
	return all;
}

struct Shape {
	virtual ~Shape() {}
	virtual int area() const = 0;
	__attribute__((noinline)) int checked() const
	{
		int a = area();
		if (a < 0)
			throw std::range_error("area " + std::to_string(a));
		return a;
	}
};

inline __attribute__((noinline)) int clamp(int v, int lo, int hi) { return v < lo ? lo : v > hi ? hi : v; }

int two(int n);
int square_of(int side);
int missing(int side);
extern "C" int hook(int n);
extern "C" int by_hand(int n);   // assembly: n + 1, from a frame of its own
extern "C" int calls_back(int (*fn)(int), int n);
