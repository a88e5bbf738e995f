package action

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"os"
	"strings"
	"unsafe"

	"github.com/trivet-project/trivet"
)

// wrongWord is a word of the memory that has not what was written.
type wrongWord struct {
	pattern          string
	word             uint64 // its number in the memory that is tested
	at               uint64 // its physical address; 0: not known
	got, want, again uint64 // again: what a second reading has
}

func (w wrongWord) String() string {
	where := fmt.Sprintf("word %d", w.word)
	if w.at != 0 {
		where = fmt.Sprintf("physical address %#x", w.at)
	}
	return fmt.Sprintf("%s has %#x, and %#x was written (%s)", where, w.got, w.want, bitsOf(w.got^w.want))
}

// maxWrongWords is how many are written to the log.
const maxWrongWords = 32

// wrongWords are the ones of a pattern.
type wrongWords struct {
	kept  []wrongWord
	count int
	bits  uint64 // that were wrong in any
}

func (w *wrongWords) add(word wrongWord) {
	if w.count++; w.count <= maxWrongWords {
		w.kept = append(w.kept, word)
	}
	w.bits |= word.got ^ word.want
}

// fault writes the words to the log, and returns what is wrong; nil where nothing is.
func (w *wrongWords) fault(log io.Writer) error {
	if w.count == 0 {
		return nil
	}
	for _, word := range w.kept {
		fmt.Fprintf(log, "memory: pattern %s: %s; read again: %#x\n", word.pattern, word, word.again)
	}
	if w.count == 1 {
		return finalf(trivet.FaultMachine, "memory: %s", w.kept[0])
	}
	return finalf(trivet.FaultMachine, "memory: %d words are wrong (%s); the first: %s", w.count, bitsOf(w.bits), w.kept[0])
}

// bitsOf lists the bits that are set: "bits 4, 17".
func bitsOf(mask uint64) string {
	var list []string
	for m := mask; m != 0; m &= m - 1 {
		list = append(list, fmt.Sprint(bits.TrailingZeros64(m)))
	}
	if len(list) > 8 {
		return fmt.Sprintf("%d bits", len(list))
	}
	if len(list) == 1 {
		return "bit " + list[0]
	}
	return "bits " + strings.Join(list, ", ")
}

// physical returns the physical address of a byte, by which boards name their modules; 0 where the kernel does not
// show it.
func physical(b *byte) uint64 {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return 0
	}
	defer f.Close()
	page, address := uint64(os.Getpagesize()), uint64(uintptr(unsafe.Pointer(b)))
	entry := make([]byte, 8)
	if _, err := f.ReadAt(entry, int64(address/page*8)); err != nil {
		return 0
	}
	const frame = 1<<55 - 1
	number := binary.NativeEndian.Uint64(entry) & frame
	if number == 0 {
		return 0
	}
	return number*page + address%page
}
