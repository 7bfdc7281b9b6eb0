# Uses features of Python, argv[1] times.
import hashlib, json, re, sys, threading, traceback, zlib

def deep(n):
    return 1 // n if n == 0 else deep(n - 1)

total = 0
for i in range(int(sys.argv[1])):
    data = {"a": [1, 2.5, str(i)], "b": {str(k): k * k for k in range(20)}}
    text = json.dumps(data, indent=1)
    assert json.loads(text) == data
    total += zlib.crc32(zlib.decompress(zlib.compress(text.encode())))
    total += len(re.findall(r"(\w+)\s*:", text))
    total += int(hashlib.sha256(text.encode()).hexdigest()[:4], 16)
    try:
        deep(20)
    except ZeroDivisionError:
        total += len(traceback.format_exc())
    ts = [threading.Thread(target=lambda: sorted(str(x) for x in range(50))) for _ in range(2)]
    for t in ts: t.start()
    for t in ts: t.join()
    total += sum(x * x for x in range(100)) + (3 ** 200 % 1007)
print(total)
