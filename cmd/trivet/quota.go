package main

import "github.com/trivet-project/trivet"

// quota is a size of which 0 is none.
type quota trivet.ByteSize

func (q quota) MarshalText() ([]byte, error) { return trivet.ByteSize(q).MarshalText() }

func (q *quota) UnmarshalText(text []byte) error {
	if string(text) == "0" {
		*q = 0
		return nil
	}
	return (*trivet.ByteSize)(q).UnmarshalText(text)
}
