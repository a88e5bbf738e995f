// Package image inspects, decompresses and writes operating system images.
//
// [Inspect] detects what a file is before it is stored; [Decompress] returns its content; [Write] writes a raw image
// to a disk. Archives are unpacked by the agent's action, which has file trees of its own. Virtual machines' formats
// (qcow2 and such) are refused with the command that converts them.
//
// Every defect of an image is [trivet.ErrInvalid]; errors of its source and target are returned unchanged, so that
// callers can attribute the failure.
package image
