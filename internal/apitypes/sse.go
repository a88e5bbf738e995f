package apitypes

import (
	"bytes"
	"strconv"
)

// AppendEvent appends a server-sent event (WHATWG HTML, §9.2) to b. The data is one JSON value, whose line breaks are
// dropped. An id of 0 is left out.
func AppendEvent(b []byte, event string, id int64, data []byte) []byte {
	b = append(b, "event: "+event+"\n"...)
	if id > 0 {
		b = append(b, "id: "...)
		b = strconv.AppendInt(b, id, 10)
		b = append(b, '\n')
	}
	b = append(b, "data: "...)
	b = append(b, bytes.ReplaceAll(data, []byte("\n"), nil)...)
	return append(b, "\n\n"...)
}
