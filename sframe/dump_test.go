package sframe

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// objdumpOutput is the output of binutils' objdump 2.47 for the sections of TestDump.
var objdumpOutput = map[string]string{
	"amd64v3": `  Header :

    Version: SFRAME_VERSION_3
    Flags: SFRAME_F_FDE_SORTED,
           SFRAME_F_FDE_FUNC_START_PCREL
    CFA fixed RA offset: -8
    Num FDEs: 5
    Num FREs: 13

  Function Index :

    func idx [0]: pc = 0x1000, size = 16 bytes
    STARTPC         CFA       FP        RA           
    0000000000001000  sp+8      u         f            
    0000000000001004  fp+16     c-16      f            
    0000000000001008  RA undefined

    func idx [1]: pc = 0x1010, size = 64 bytes, attr = "SF"
    STARTPC         CFA       FP        RA           
    0000000000001010  (sp+160)  (sp+120)  (sp+168)     
    0000000000001014  r10+0     (fp+0)    U            
    0000000000001018  r3-1      u         c-16         
    000000000000101c  fp+16     c+4       r5+0         

    func idx [2]: pc = 0x1050, size = 64 bytes
    STARTPC[m]      CFA       FP        RA           
    0000000000000000  sp+8      u         f            
    0000000000000004  sp+-16    u         f            

    func idx [3]: pc = 0x1090, size = 16 bytes, attr = "S"
    STARTPC         CFA       FP        RA           
    0000000000001090  sp+8      u         f            

    func idx [4]: pc = 0x10a0, size = 1048576 bytes
    STARTPC         CFA       FP        RA           
    00000000000010a0  sp+8      u         f            
    000000000000119f  sp+16     u         f            
    00000000000133e5  sp+24     u         f            
`,
	"aarch64v2": `  Header :

    Version: SFRAME_VERSION_2
    Flags: SFRAME_F_FDE_SORTED,
           SFRAME_F_FRAME_POINTER
    Num FDEs: 1
    Num FREs: 3

  Function Index :

    func idx [0]: pc = 0x1000, size = 16 bytes, pauth = B key
    STARTPC         CFA       FP        RA           
    0000000000001000  sp+0      u         u            
    0000000000001004  sp+32     c-32      c-24[s]      
    0000000000001008  sp+32     u         c-8          
`,
	"amd64v2": `  Header :

    Version: SFRAME_VERSION_2
    Flags: NONE
    CFA fixed RA offset: -8
    Num FDEs: 1
    Num FREs: 1

  Function Index :

    func idx [0]: pc = 0x1000, size = 16 bytes
    STARTPC         CFA       FP        RA           
    0000000000001000  sp+8      u         f            
`,
	"s390xv2": `  Header :

    Version: SFRAME_VERSION_2
    Flags: SFRAME_F_FDE_SORTED
    Num FDEs: 1
    Num FREs: 3

  Function Index :

    func idx [0]: pc = 0x1000, size = 16 bytes
    STARTPC         CFA       FP        RA           
    0000000000001000  sp+160    u         u            
    0000000000001004  sp+320    r16       r17          
    0000000000001008  sp+160    c-72      U            
`,
	"aarch64v3": `  Header :

    Version: SFRAME_VERSION_3
    Flags: SFRAME_F_FDE_FUNC_START_PCREL
    Num FDEs: 1
    Num FREs: 4

  Function Index :

    func idx [0]: pc = 0x1000, size = 64 bytes, attr = "F", pauth = B key
    STARTPC         CFA       FP        RA           
    0000000000001000  fp+0      u         u            
    0000000000001004  sp+32     c-32      c-24[s]      
    0000000000001008  (r2+32)   c-8       U            
    000000000000100c  sp+32     u         r17+0        
`,
}

// TestDump covers cases that do not occur in the dump test of package convert.
func TestDump(t *testing.T) {
	every4 := func(rows ...Row) (all []FRE) {
		for i, r := range rows {
			all = append(all, FRE{uint32(4 * i), r})
		}
		return all
	}
	for name, data := range map[string][]byte{
		"amd64v3": section(t, codec(t, V3, AMD64Little), FDESorted|FDEFuncStartPCRel, 0x8000,
			entry{FDE{Start: 0x1000, Size: 16}, every4(Row{CFA: sp(8)}, Row{CFA: fp(16), FP: slot(-16)},
				Row{Outermost: true})},
			entry{FDE{Start: 0x1010, Size: 64, Signal: true, Flexible: true}, every4(
				Row{CFA: deref(7, 160), RA: deref(7, 168), FP: deref(7, 120)},
				Row{CFA: at(10, 0), FP: deref(6, 0)},
				Row{CFA: at(3, -1), RA: slot(-16)},
				Row{CFA: at(6, 16), RA: reg(5), FP: slot(4)},
			)},
			entry{FDE{Start: 0x1050, Size: 64, PCMask: true, RepSize: 16}, every4(Row{CFA: sp(8)}, Row{CFA: sp(-16)})},
			entry{FDE{Start: 0x1090, Size: 16, Signal: true}, every4(Row{CFA: sp(8)})},
			entry{FDE{Start: 0x10a0, Size: 1 << 20}, []FRE{{0, Row{CFA: sp(8)}}, {255, Row{CFA: sp(16)}},
				{0x12345, Row{CFA: sp(24)}}}},
		),
		"aarch64v2": section(t, codec(t, V2, AArch64Little), FDESorted|FramePointer, 0x8000,
			entry{FDE{Start: 0x1000, Size: 16, KeyB: true}, every4(
				Row{CFA: sp(0)},
				Row{CFA: sp(32), RA: slot(-24), FP: slot(-32), Signed: true},
				Row{CFA: sp(32), RA: slot(-8)},
			)},
		),
		"s390xv2": section(t, codec(t, V2, S390XBig), FDESorted, 0x8000,
			entry{FDE{Start: 0x1000, Size: 16}, every4(
				Row{CFA: sp(160)},
				Row{CFA: sp(320), RA: reg(17), FP: reg(16)},
				Row{CFA: sp(160), FP: slot(-72)},
			)},
		),
		"amd64v2": section(t, codec(t, V2, AMD64Little), 0, 0x8000,
			entry{FDE{Start: 0x1000, Size: 16}, every4(Row{CFA: sp(8)})},
		),
		"aarch64v3": section(t, codec(t, V3, AArch64Little), FDEFuncStartPCRel, 0x8000,
			entry{FDE{Start: 0x1000, Size: 64, KeyB: true, Flexible: true}, every4(
				Row{CFA: at(29, 0)},
				Row{CFA: at(31, 32), RA: slot(-24), FP: slot(-32), Signed: true},
				Row{CFA: deref(2, 32), FP: slot(-8)},
				Row{CFA: at(31, 32), RA: reg(17)},
			)},
		),
	} {
		s, err := Decode(data, 0x8000)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var out bytes.Buffer
		if err := s.Dump(&out, nil); err != nil || out.String() != objdumpOutput[name] {
			t.Errorf("%s: error %v,\n%swant\n%s", name, err, &out, objdumpOutput[name])
		}
		s.FixedFP = -16
		out.Reset()
		if err := s.Dump(&out, nil); err != nil || !strings.Contains(out.String(), "\n    CFA fixed FP offset: -16\n") {
			t.Errorf("%s: with a fixed FP, error %v,\n%s", name, err, &out)
		}
		s.FixedFP = 0
		out.Reset()
		moved := strings.ReplaceAll(strings.ReplaceAll(objdumpOutput[name], "0x1000", "0x7100"), "000000000000100",
			"000000000000710")
		if name == "aarch64v2" {
			if err := s.Dump(&out, func(pc uint64) uint64 { return pc + 0x6100 }); err != nil || out.String() != moved {
				t.Errorf("%s, moved: error %v,\n%swant\n%s", name, err, &out, moved)
			}
		}
	}
}

// lines counts lines.
type lines int

func (n *lines) Write(b []byte) (int, error) {
	*n += lines(bytes.Count(b, []byte("\n")))
	return len(b), nil
}

// TestDumpBound dumps 64 FDEs that share 65536 rows, the largest dump allowed, and then 65 FDEs.
func TestDumpBound(t *testing.T) {
	const rows = 65536
	parts := make([]entry, 65)
	parts[0].fde.Size = rows
	for i := range uint32(rows) {
		parts[0].fres = append(parts[0].fres, FRE{i, Row{Outermost: true}})
	}
	shared := section(t, codec(t, V2, AMD64Little), 0, 0, parts...)
	for n, want := range map[int]string{64: "", 65: "at FDE 64 (0x0)"} {
		data := bytes.Clone(shared)
		binary.LittleEndian.PutUint32(data[12:], uint32(n*rows)) // NumFREs
		for i := range n {
			copy(data[28+20*i:], shared[28:48])
		}
		var out lines
		err := must.Get(Decode(data, 0))(t).Dump(&out, nil)
		if (err == nil) != (want == "") || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%d FDEs: error %v, want %q", n, err, want)
		}
		// The header takes 8 lines, and each FDE takes 3 more than its rows.
		if least := 8 + 64*(3+rows); out < lines(least) {
			t.Errorf("%d FDEs: %d lines, want at least %d", n, out, least)
		}
	}
}
