package cli

import "strings"

// diffContext is the number of equal lines that are shown around a difference.
const diffContext = 3

// maxDiffCells bounds the table of a comparison. Above it, all lines between the first and the last difference differ.
const maxDiffCells = 4 << 20

// diffLine is a line of one text (' ' both, '-' the old one only, '+' the new one only).
type diffLine struct {
	mark byte
	text string
}

// diffText compares two texts by lines: what differs, with some lines around it and ... for others. It is empty where
// they are equal.
func diffText(before, after string) string {
	all := diffLines(textLines(before), textLines(after))
	near := make([]bool, len(all))
	for i, l := range all {
		if l.mark == ' ' {
			continue
		}
		for j := max(0, i-diffContext); j <= min(len(all)-1, i+diffContext); j++ {
			near[j] = true
		}
	}
	var b strings.Builder
	shown := false
	for i, l := range all {
		if !near[i] {
			continue
		}
		if i > 0 && !near[i-1] && shown {
			b.WriteString("...\n")
		}
		shown = true
		b.WriteString(strings.TrimRight(string(l.mark)+" "+l.text, " ") + "\n")
	}
	return b.String()
}

func textLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// diffLines compares lines by their longest common subsequence.
func diffLines(a, b []string) (all []diffLine) {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		all = append(all, diffLine{' ', a[head]})
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	all = append(all, diffMiddle(a[head:len(a)-tail], b[head:len(b)-tail])...)
	for _, text := range a[len(a)-tail:] {
		all = append(all, diffLine{' ', text})
	}
	return all
}

func diffMiddle(a, b []string) (all []diffLine) {
	var common [][]int32 // of a[i:] and b[j:]: the length of the longest common subsequence
	if (len(a)+1)*(len(b)+1) <= maxDiffCells {
		common = commonLengths(a, b)
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case common != nil && i < len(a) && j < len(b) && a[i] == b[j]:
			all = append(all, diffLine{' ', a[i]})
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common == nil || common[i+1][j] >= common[i][j+1]):
			all = append(all, diffLine{'-', a[i]})
			i++
		default:
			all = append(all, diffLine{'+', b[j]})
			j++
		}
	}
	return all
}

func commonLengths(a, b []string) [][]int32 {
	table := make([][]int32, len(a)+1)
	for i := range table {
		table[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				table[i][j] = table[i+1][j+1] + 1
			} else {
				table[i][j] = max(table[i+1][j], table[i][j+1])
			}
		}
	}
	return table
}
