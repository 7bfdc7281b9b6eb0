int base(int x) { return x + 1; }
