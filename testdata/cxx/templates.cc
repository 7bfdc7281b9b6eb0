// Instantiates much of the standard library, for the size of .sframe: containers of many
// types, algorithms, streams, regular expressions and threads.
#include <algorithm>
#include <deque>
#include <functional>
#include <future>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <queue>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

struct Point {
	int x, y;
	std::string name;
	bool operator<(const Point &o) const { return std::tie(x, y, name) < std::tie(o.x, o.y, o.name); }
	bool operator==(const Point &o) const { return x == o.x && y == o.y && name == o.name; }
};

static std::ostringstream out;

// What is shown of each type.
template <class T> struct Show { static void to(const T &x) { out << x << ' '; } };
template <class T> static void show(const T &x) { Show<T>::to(x); }
template <> struct Show<Point> { static void to(const Point &p) { out << p.name << '(' << p.x << ',' << p.y << ')'; } };
template <class T, class U> struct Show<std::pair<T, U>> { static void to(const std::pair<T, U> &p) { show(p.first), show(p.second); } };
template <class T> struct Show<std::vector<T>> {
	static void to(const std::vector<T> &v) {
		for (const T &x : v) show(x);
	}
};

// Values of each type.
template <class T> struct Make { static T of(int i) { return T(i * 7919 % 1009); } };
template <> struct Make<std::string> { static std::string of(int i) { return "key-" + std::to_string(i * 37 % 1000); } };
template <> struct Make<Point> { static Point of(int i) { return {i % 13, i % 7, Make<std::string>::of(i)}; } };
template <class T> struct Make<std::vector<T>> { static std::vector<T> of(int i) { return {Make<T>::of(i), Make<T>::of(i + 1)}; } };
template <class T, class U> struct Make<std::pair<T, U>> { static std::pair<T, U> of(int i) { return {Make<T>::of(i), Make<U>::of(i)}; } };

template <class C> static void print(const C &c) {
	for (const auto &x : c) show(x);
}

template <class T> static void sequences() {
	std::vector<T> v;
	std::deque<T> d;
	std::list<T> l;
	for (int i = 0; i < 60; i++) {
		v.push_back(Make<T>::of(i));
		d.push_front(Make<T>::of(i + 1));
		l.insert(l.begin(), Make<T>::of(i + 2));
	}
	v.insert(v.begin() + 3, d.begin(), d.end());
	v.erase(v.begin() + 1, v.begin() + 4);
	d.resize(30);
	l.reverse();
	l.unique();
	std::vector<T> w = v;
	std::rotate(w.begin(), w.begin() + 5, w.end());
	std::shuffle(w.begin(), w.end(), std::mt19937(7));
	w.erase(std::remove(w.begin(), w.end(), Make<T>::of(4)), w.end());
	auto shared = std::make_shared<T>(w[0]);
	std::optional<T> some = *shared;
	show(*some);
	print(v), print(d), print(l), print(w);
}

template <class T> static void ordered() {
	std::vector<T> v;
	for (int i = 0; i < 60; i++) v.push_back(Make<T>::of(i));
	std::sort(v.begin(), v.end());
	std::stable_sort(v.begin(), v.end(), [](const T &a, const T &b) { return b < a; });
	std::partial_sort(v.begin(), v.begin() + 10, v.end(), std::less<T>());
	std::nth_element(v.begin(), v.begin() + 20, v.end());
	std::make_heap(v.begin(), v.end());
	std::sort_heap(v.begin(), v.end());
	std::inplace_merge(v.begin(), v.begin() + 30, v.end());
	std::set<T> s(v.begin(), v.end());
	std::multiset<T> m(v.begin() + 10, v.end());
	s.erase(Make<T>::of(3));
	std::vector<T> both;
	std::set_intersection(s.begin(), s.end(), m.begin(), m.end(), std::back_inserter(both));
	std::priority_queue<T> q(std::less<T>(), both);
	q.push(Make<T>::of(5));
	show(q.top());
	std::list<T> l(both.begin(), both.end());
	l.sort();
	print(l), print(s);
}

template <class K, class V> static void maps() {
	std::map<K, V> m;
	std::multimap<K, V> mm;
	for (int i = 0; i < 40; i++) {
		m[Make<K>::of(i)] = Make<V>::of(i);
		m.emplace(Make<K>::of(i + 3), Make<V>::of(i));
		mm.insert({Make<K>::of(i % 9), Make<V>::of(i)});
	}
	m.erase(Make<K>::of(3));
	std::map<K, V> copy = m;
	copy.merge(m);
	print(copy), print(mm);
	try {
		show(m.at(Make<K>::of(1000)));
	} catch (const std::out_of_range &e) {
		out << e.what();
	}
}

template <class K, class V> static void hashed() {
	std::unordered_map<K, V> m;
	for (int i = 0; i < 40; i++) m[Make<K>::of(i)] = Make<V>::of(i);
	m.erase(Make<K>::of(3));
	m.rehash(500);
	auto copy = m;
	out << (copy.size() == m.size());
	print(copy);
}

template <class... T> static void all() {
	(sequences<T>(), ...);
	(ordered<T>(), ...);
	(maps<int, T>(), ...);
	(maps<std::string, T>(), ...);
	(maps<T, std::vector<T>>(), ...);
	(hashed<int, T>(), ...);
	(hashed<std::string, T>(), ...);
}

static void variants() {
	std::vector<std::variant<int, double, std::string, Point, std::vector<int>>> v{1, 2.5, std::string("abc"), Make<Point>::of(3), std::vector<int>{1, 2}};
	for (int i = 0; i < 20; i++) {
		v.push_back(v[i]);
		v[i % 5] = v[(i + 1) % 5];
	}
	for (const auto &x : v) std::visit([](const auto &value) { show(value); }, x);
}

static void text() {
	const std::string line = "tel. 555-1234 or foo.bar@example.org; 2024-05-17T12:00:01";
	for (const char *pattern : {"(\\d{3})-(\\d{4})", "([a-z.]+)@([a-z]+\\.)+[a-z]{2,4}", "\\b(\\w)(\\w*)\\1"}) {
		const std::regex expression(pattern);
		for (std::sregex_iterator i(line.begin(), line.end(), expression), end; i != end; ++i) show(i->str(0));
	}
	std::wstringstream wide;
	wide << 1.5 << L' ' << line.size();
	std::wstring word;
	while (wide >> word) out << word.size();
}

static void threads() {
	std::mutex mutex;
	std::map<std::thread::id, std::vector<std::string>> done;
	std::vector<std::thread> workers;
	for (int i = 0; i < 3; i++)
		workers.emplace_back([&, i] {
			std::lock_guard<std::mutex> lock(mutex);
			done[std::this_thread::get_id()].push_back(Make<std::string>::of(i));
		});
	for (auto &w : workers) w.join();
	auto sum = std::async(std::launch::async, [](std::vector<double> v) { return std::accumulate(v.begin(), v.end(), 0.0); }, std::vector<double>{1, 2, 3});
	std::function<size_t()> size = [&] { return done.size(); };
	out << sum.get() << size();
}

int main() {
	all<int, long, double, char, std::string, Point, std::vector<int>, std::vector<std::string>, std::pair<int, std::string>>();
	variants();
	text();
	threads();
	std::cout << out.str().size() << '\n';
}
