// The counterpart of chain.c in C++. Usage: chainxx. It runs with a shared libgcc whose _Unwind_Backtrace, which glibc
// falls back to, finds nothing.
#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <dlfcn.h>
#include <execinfo.h>
#include <functional>
#include <iostream>
#include <link.h>
#include <map>
#include <mutex>
#include <regex>
#include <stdexcept>
#include <thread>
#include <typeinfo>
#include <unwind.h>
#include <vector>
#include "last.h"

extern "C" void rust_scene(void (*)(const char *)); // of last.rs

namespace {

struct chain {
	void *pc[512];
	int n = 0;
};

_Unwind_Reason_Code one_frame(_Unwind_Context *context, void *arg)
{
	auto *c = static_cast<chain *>(arg);
	if (c->n == 512)
		return _URC_END_OF_STACK;
	c->pc[c->n++] = reinterpret_cast<void *>(_Unwind_GetIP(context));
	return _URC_NO_REASON;
}

void print_chain(const char *what, const chain &c)
{
	printf("  %s:", what);
	for (int i = 0; i < c.n; i++) {
		dl_find_object o;
		if (_dl_find_object(c.pc[i], &o) || !o.dlfo_link_map) {
			printf(" ?+%p", c.pc[i]);
			continue;
		}
		const char *name = o.dlfo_link_map->l_name, *slash = strrchr(name, '/');
		printf(" %s+%#lx", slash ? slash + 1 : *name ? name : "run", (unsigned long)c.pc[i] - o.dlfo_link_map->l_addr);
	}
	putchar('\n');
}

__attribute__((noinline)) void check(const char *scene)
{
	static chain a, b;
	a.n = backtrace(a.pc, 512);
	b.n = 0;
	_Unwind_Backtrace(one_frame, &b);
	if (b.n > 1 && !b.pc[b.n - 1])
		b.n--;
	bool equal = a.n == b.n && !memcmp(a.pc + 1, b.pc + 1, (a.n - 1) * sizeof *a.pc);
	printf("%s %d %s\n", scene, b.n, a.n < 2 ? "nothing" : equal ? "equal" : "differs");
	if (a.n < 2 || !equal) {
		print_chain("backtrace", a);
		print_chain("DWARF", b);
	}
	fflush(stdout);
}

void once(const char *scene)
{
	static const char *last;
	if (last != scene)
		check(scene);
	last = scene;
}

struct early {
	early() { check("constructor of a static object"); }
	~early() { check("destructor of a static object"); }
} object;

struct guard {
	const char *scene;
	~guard() { check(scene); }
};

struct base {
	virtual ~base() = default;
	virtual int call(int n) = 0;
};
struct derived : base {
	int call(int n) override { return check("virtual function"), n; }
};

struct buffer : std::streambuf {
	int overflow(int c) override { return once("streambuf::overflow"), c; }
};

template <typename T> __attribute__((noinline)) void throwing(T value, int depth)
{
	guard g{"destructor while an exception passes"};
	if (depth == 0)
		throw std::runtime_error("x");
	throwing(value, depth - 1);
}

std::once_flag flag;

// Nothing catches the exception, and so __cxa_throw calls the handler.
jmp_buf jump;
__attribute__((noinline)) void uncaught(double n)
{
	std::set_terminate([] {
		check("std::terminate");
		longjmp(jump, 1);
	});
	if (!setjmp(jump))
		throw n;
}

} // namespace

// Replaces that of libstdc++.
extern "C" void __cxa_throw(void *object, void *type, void (*destructor)(void *))
{
	if (*static_cast<std::type_info *>(type) == typeid(int))
		once("throw");
	reinterpret_cast<decltype(&__cxa_throw)>(dlsym(RTLD_NEXT, "__cxa_throw"))(object, type, destructor);
	__builtin_unreachable();
}

int main()
{
	check("main");
	std::vector<int> v(1000);
	for (int i = 0; i < 1000; i++)
		v[i] = i * 7919 % 1000;
	std::sort(v.begin(), v.end(), [](int a, int b) { return once("std::sort"), a < b; });
	std::stable_sort(v.begin(), v.end(), [](int a, int b) { return once("std::stable_sort"), a > b; });
	std::function<int(int)> f = [](int n) { return check("std::function"), n; };
	f(1);
	derived d;
	static_cast<base &>(d).call(2);
	std::thread([] {
		check("std::thread");
		std::call_once(flag, [] { check("std::call_once in a thread"); });
	}).join();
	try {
		throwing(1.5, 3);
	} catch (const std::exception &) {
		check("catch");
	}
	buffer b;
	std::ostream(&b) << 12345 << " and " << 1.5 << std::endl;
	std::map<std::string, int> m;
	for (int i = 0; i < 100; i++)
		m[std::to_string(i)] = i;
	std::regex r("(a|b)*c[0-9]+");
	std::regex_replace("ababc123 abc1", r, "$1");
	std::for_each(m.begin(), m.end(), [](const auto &) { once("std::for_each"); });
	void (*volatile throws)(int) = last_throw; // if the compiler knew the function, the caller would end with the call
	try {
		throws(3);
	} catch (int) {
	}
	uncaught(3.5);
	rust_scene(check);
	std::atexit([] { check("std::atexit"); });
}
