package bmc

import (
	"encoding/binary"
	"fmt"
	"time"
)

// selSize is the size of a record of the SEL (§32).
const selSize = 16

// Types of records (§32.1 to §32.3).
const (
	selStandard = 0x02
	selOEMTimed = 0xc0 // and above: of the manufacturer, with a time
	selOEM      = 0xe0 // and above: without
)

// Timestamps that are no time (§37): seconds since the BMC started, up to selRelative, and selUnset.
const (
	selRelative = 0x20000000
	selUnset    = 0xffffffff
)

// decodeSEL decodes a record.
func decodeSEL(r [selSize]byte) Entry {
	kind, stamp := r[2], binary.LittleEndian.Uint32(r[3:])
	e := Entry{Time: selTime(stamp)}
	switch {
	case kind >= selOEM:
		return Entry{Text: fmt.Sprintf("OEM record %#02x: % x", kind, r[3:])}
	case kind >= selOEMTimed:
		e.Text = fmt.Sprintf("OEM record %#02x of manufacturer %#06x: % x", kind,
			uint32(r[7])|uint32(r[8])<<8|uint32(r[9])<<16, r[10:])
	case kind == selStandard:
		e.Text = selEvent(r[10], r[11], r[12], [3]byte(r[13:]))
	default:
		e.Text = fmt.Sprintf("record of type %#02x: % x", kind, r[7:])
	}
	if stamp <= selRelative {
		e.Text += fmt.Sprintf(", %s after the BMC started", time.Duration(stamp)*time.Second)
	}
	return e
}

// selTime returns a timestamp; zero: it is none.
func selTime(stamp uint32) time.Time {
	if stamp <= selRelative || stamp == selUnset {
		return time.Time{}
	}
	return time.Unix(int64(stamp), 0).UTC()
}

// selEvent describes an event by the type and number of its sensor, its direction and type, and its data (table 32-1).
func selEvent(sensor, number, event byte, data [3]byte) string {
	direction := "asserted"
	if event&0x80 != 0 {
		direction = "deasserted"
	}
	event &^= 0x80
	what := eventName(sensor, event, data[0]&0x0f)
	if what != "" {
		what += ", "
	}
	return fmt.Sprintf("%s %#02x: %s%s (event type %#02x, data % x)", sensorName(sensor), number, what, direction, event,
		data)
}

// sensorName returns the name of a type of sensors (table 42-3).
func sensorName(sensor byte) string {
	switch {
	case int(sensor) < len(sensorNames) && sensor > 0:
		return sensorNames[sensor]
	case sensor >= 0xc0:
		return fmt.Sprintf("OEM sensor of type %#02x", sensor)
	}
	return fmt.Sprintf("sensor of type %#02x", sensor)
}

// eventName returns the name of an event; empty where it has none.
func eventName(sensor, event, offset byte) string {
	names := genericEvents[event]
	if event == sensorSpecific {
		names = sensorEvents[sensor]
	}
	if int(offset) < len(names) {
		return names[offset]
	}
	return ""
}
