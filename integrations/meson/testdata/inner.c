int inner(int x) { return x * 2; }
