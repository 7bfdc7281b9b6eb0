package generate

import "bytes"

// Damage returns a random value for the parameter damage of Damaged.
func Damage(seed uint64) uint64 { return seed*0x9e3779b97f4a7c15 | 1 }

// Damaged returns a copy of a file with up to four bytes changed, as damage selects, mostly in headers and tables.
func Damaged(b []byte, damage uint64) []byte {
	b = bytes.Clone(b)
	for range 1 + damage>>1&3 {
		damage = damage*6364136223846793005 + 1442695040888963407
		at := int(damage>>33) % len(b)
		switch damage >> 30 & 3 {
		case 0:
			at %= 1024
		case 1:
			at = len(b) - 1 - at%2048
		}
		if at = max(at, 0) % len(b); at < 6 {
			continue // keep the ELF magic
		}
		switch damage >> 26 & 3 {
		case 0:
			b[at] ^= 1 << (damage >> 20 & 7)
		case 1:
			b[at] = 0xff
		case 2:
			b[at] = 0
		default:
			b[at] = byte(damage >> 12)
		}
	}
	return b
}
