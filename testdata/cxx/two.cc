#include "parts.h"

namespace {
struct Square : Shape {
	explicit Square(int side) : side(side) {}
	int area() const override { return side < 0 ? side : side * side; }
	int side;
};
}

int two(int n) { return clamp(n, 0, 6) + sum(std::vector<int>{1, 2}); }

int square_of(int side)
{
	Square s(side);
	return s.checked();
}

extern "C" int hook(int n) { return n * 2; }

__attribute__((weak)) int missing(int side) { return side; }

// Dead code: --gc-sections takes it out, and a template with it.
int unused_two(int n) { return (int)sum(std::vector<long>(n, n)); }
