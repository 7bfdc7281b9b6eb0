#include <stdexcept>

extern "C" int sample(int x) {
	try {
		if (x > 1)
			throw std::runtime_error("large");
		return x;
	} catch (const std::exception &) {
		return -1;
	}
}
