// Package image knows what operating-system images are made of, and puts them on disks.
//
// [Inspect] says what a file is before it is stored; [Decompress] gives the bytes in it; [Write] puts a raw image on a
// disk. Archives are unpacked by the agent's action, which has file trees of its own. Virtual machines' formats (qcow2 and
// such) are refused with the command that converts them.
//
// Whatever is wrong with an image is [trivet.ErrInvalid]; errors of what it is read from or written to stay as they are, so
// that callers can tell whose fault it was.
package image
