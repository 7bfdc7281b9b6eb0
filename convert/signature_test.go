package convert_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// sign appends a signature as Linux's scripts/sign-file does: the signature, struct module_signature
// (include/linux/module_signature.h) with the given length, and the magic.
func sign(b []byte, signature int, length uint32) []byte {
	end := []byte{0, 0, 2, 0, 0, 0, 0, 0} // algo, hash, id_type: PKEY_ID_PKCS7, signer_len, key_id_len, padding
	end = binary.BigEndian.AppendUint32(end, length)
	return slices.Concat(b, bytes.Repeat([]byte{0xa5}, signature), end, []byte("~Module signature appended~\n"))
}

// TestSignature converts files with a module signature: it must be removed if the file changes.
func TestSignature(t *testing.T) {
	object, prog := elftest.NewObject().Bytes(), testfile.Read(t, filepath.Join(fixtures, "amd64/prologue"))
	for name, b := range map[string][]byte{"object": object, "program": prog} {
		want, res, err := inMemory(b, convert.Options{})
		if err != nil || res.Unsigned || res.Facts[0].Unsigned {
			t.Fatalf("%s: %v", name, err)
		}
		got, res, err := inMemory(sign(b, 700, 700), convert.Options{})
		if err != nil || !bytes.Equal(got, want) || !res.Unsigned || !res.Facts[0].Unsigned {
			t.Errorf("%s: %d bytes; want %d; error %v", name, len(got), len(want), err)
		}
		plain, _ := must.Two(runBytes(want, remove("")))(t)
		got, res, err = runBytes(sign(want, 1, 1), remove(""))
		if err != nil || !bytes.Equal(got, plain) || !res.Unsigned {
			t.Errorf("%s, removed: %d bytes, want %d; error %v", name, len(got), len(plain), err)
		}
		// Unchanged files keep the signature.
		current := sign(want, 3, 3)
		got, res, err = inMemory(current, convert.Options{Update: true})
		if err != nil || !bytes.Equal(got, current) || res.Unsigned || res.Facts[0].Unsigned {
			t.Errorf("%s, current: %d bytes, error %v", name, len(got), err)
		}
		if _, res, err = runBytes(sign(b, 700, 700), remove("")); name == "program" &&
			!errors.Is(err, elfwrite.ErrNone) ||
			name == "object" && (err != nil || res.Unsigned) {
			t.Errorf("%s, nothing to remove: %v", name, err)
		}
		// Linux does not accept a signature that is longer than the file.
		if _, _, err := inMemory(sign(b, 700, 1<<30), convert.Options{}); err == nil ||
			!strings.Contains(err.Error(), "module signature") {
			t.Errorf("%s: a signature of 2^30 bytes: %v", name, err)
		}
	}
	// A partial magic is not a signature.
	cut := sign(object, 8, 8)
	if _, res, err := inMemory(cut[:len(cut)-1], convert.Options{}); err != nil || res.Unsigned {
		t.Errorf("without the last byte: %v", err)
	}
}
