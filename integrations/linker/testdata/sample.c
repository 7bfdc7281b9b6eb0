int base(int x);
int sample(int x) { return base(x) * 2; }
