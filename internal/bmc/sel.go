package bmc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
)

// The system event log (SEL) of an IPMI BMC (§31).
const (
	netStorage = 0x0a

	cmdSELInfo  = 0x40
	cmdSELEntry = 0x43
	cmdSELTime  = 0x48
)

// IDs of records (§31.5). 0 is none.
const (
	selLast  = 0xffff // the last record
	maxSELID = 0xfffe
)

// codeNotPresent: there is no record of that ID (§5.2).
const codeNotPresent = 0xcb

// Events implements [EventLog].
func (b *ipmiBMC) Events(ctx context.Context, limit int) (events Events, err error) {
	err = b.do(ctx, "read event log of", func(ctx context.Context, s *rmcpSession) error {
		return unsent(events.readSEL(ctx, s, limit), trivet.ErrUnavailable)
	})
	slices.Reverse(events.Entries)
	return events, err
}

// readSEL reads from the last record backwards: a log has up to thousands of them, and each takes a request. Their IDs
// are mostly consecutive; those that do not exist are skipped, for as many requests as there are entries to read.
func (e *Events) readSEL(ctx context.Context, s *rmcpSession, limit int) error {
	info, err := s.call(ctx, netStorage, cmdSELInfo)
	switch {
	case hasCode(err, codeUnknown), hasCode(err, codeNotPresent):
		return ErrNoEventLog
	case err != nil:
		return err
	case len(info) < 3:
		return fmt.Errorf("%w: information of %d bytes about the event log", trivet.ErrInvalid, len(info))
	}
	limit = min(limit, int(binary.LittleEndian.Uint16(info[1:])))
	if e.Now, err = selClock(ctx, s); err != nil {
		return err
	}
	for id, reads := uint16(selLast), 0; len(e.Entries) < limit && reads < 2*limit; reads++ {
		record, err := selRecord(ctx, s, id)
		if err != nil && (id == selLast || !hasCode(err, codeNotPresent)) {
			return err
		}
		if err == nil {
			got := binary.LittleEndian.Uint16(record)
			if id == selLast || id == got { // and not another one in its place
				e.Entries = append(e.Entries, decodeSEL([selSize]byte(record[:selSize])))
			}
			if id == selLast {
				id = got
			}
		}
		id = selBefore(id)
	}
	return nil
}

// selRecord reads a whole record, of selSize bytes at least.
func selRecord(ctx context.Context, s *rmcpSession, id uint16) ([]byte, error) {
	data, err := s.call(ctx, netStorage, cmdSELEntry, 0, 0, byte(id), byte(id>>8), 0, 0xff)
	if err == nil && len(data) < 2+selSize {
		err = fmt.Errorf("%w: an entry of %d bytes of the event log", trivet.ErrInvalid, len(data))
	}
	if err != nil {
		return nil, err
	}
	return data[2:], nil // after the ID of the next one
}

// selClock reads the clock of the log; zero where it is not set, or the BMC refuses the command.
func selClock(ctx context.Context, s *rmcpSession) (time.Time, error) {
	data, err := s.call(ctx, netStorage, cmdSELTime)
	if errors.As(err, new(*completionError)) || err == nil && len(data) < 4 {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return selTime(binary.LittleEndian.Uint32(data)), nil
}

// selBefore returns the ID before one. After the highest one they begin again at 1.
func selBefore(id uint16) uint16 {
	if id <= 1 || id == selLast {
		return maxSELID
	}
	return id - 1
}

func hasCode(err error, code byte) bool {
	var refused *completionError
	return errors.As(err, &refused) && refused.code == code
}
