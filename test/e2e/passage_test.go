package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/lab/vm"
	"github.com/trivet-project/trivet/internal/testhead"
)

// passage is a machine's way from power-on to its own system, and the points on it where a head is lost. The machine
// is paused at each point until all heads are ready, so that one head is lost and the others have a quorum.
type passage struct {
	*cluster
	cable   *cable
	box     *box
	spare   *head          // that replaces one which is lost for good
	returns sync.WaitGroup // of the head that was lost last

	// The following fields are used in observe only, one frame after the other.
	points  []point            // to come
	since   time.Time          // the last loss
	lost    *head              // at the first of them; nil: not reached
	undo    func() error       // of the loss
	fetches map[*head]*transit // the last HTTP request to each head
}

// point is where the head that serves is lost.
type point struct {
	what      string
	step      string             // of the run, at that moment
	serves    func(*frame) *head // the head that serves, if the moment has come
	lose      func(*head) (undo func() error, err error)
	continues func(*frame) *head // the head with which the machine continues, if the frame shows it
}

// transit is a file on its way.
type transit struct {
	request string
	bytes   int
}

func newPassage(c *cluster) *passage {
	c.Helper()
	p := &passage{cluster: c, fetches: map[*head]*transit{}}
	p.spare = c.plugInHead()
	const kernel, image, phoneHome = "GET /boot/kernel/", "GET /blob/", "POST /phone-home/"
	p.points = []point{
		{"between OFFER and REQUEST", trivet.StepScript, p.offers, p.kill, p.acknowledges},
		{"during TFTP", trivet.StepScript, p.sendsProgram, p.kill, p.askedForProgram},
		{"during the kernel's fetch", trivet.StepKernel, p.sends(kernel, 1<<20), p.kill, p.asked(kernel)},
		{"during the kernel's fetch, by a cut cable", trivet.StepKernel, p.sends(kernel, 1<<20), p.cut,
			p.asked(kernel)},
		{"during the image's write, with its disk", "image", p.sends(image, 16<<20), p.destroy, p.asked(image)},
		{"after the last reboot, before phone-home", trivet.StepFirstBoot, p.asked(phoneHome), p.kill,
			p.asked(phoneHome)},
	}
	c.Cleanup(p.returns.Wait) // after the end of the cable, which may start another
	p.cable = layCable(p.T, c.net, p.observe)
	p.box = c.plugInto(c.net, p.cable.card, "heads1", "52:54:00:77:00:0a", vm.UEFIPXE)
	p.box.createRecord()
	return p
}

// observe inspects a frame before it passes. One that shows that the machine has continued may be the next point
// already.
func (p *passage) observe(f *frame) {
	f.sender, f.receiver = p.byMAC[string(f.from)], p.byMAC[string(f.to)]
	p.note(f)
	for len(p.points) > 0 {
		at := p.points[0]
		if p.lost == nil {
			if h := at.serves(f); h != nil {
				p.loseHead(at, h)
			}
			return
		}
		other := at.continues(f)
		if other == nil || other == p.lost {
			return
		}
		p.Logf("%s: the machine continues with %s after %.1f s", at.what, p.port(other), time.Since(p.since).Seconds())
		undo := p.undo
		p.returns.Go(func() {
			if err := undo(); err != nil {
				p.Error(err)
			}
		})
		p.points, p.lost, p.undo = p.points[1:], nil, nil
	}
}

// loseHead loses the head that serves. The frame that showed it passes afterwards.
func (p *passage) loseHead(at point, h *head) {
	err := p.box.Pause(p.Context())
	p.returns.Wait()
	err = errors.Join(err, p.whole())
	p.mustBeAt(at)
	undo, errLose := at.lose(h)
	p.lost, p.undo, p.since = h, undo, time.Now()
	delete(p.fetches, h) // what it sent before is not counted
	p.Logf("%s: %s is lost", at.what, p.port(h))
	if err := errors.Join(err, errLose, p.box.Resume(p.Context())); err != nil {
		p.Errorf("%s: %v", at.what, err)
	}
}

// destroy loses a head for good; undo replaces it by the spare.
func (p *passage) destroy(h *head) (undo func() error, err error) {
	err = p.lose(h)
	p.heads = append(p.heads, p.spare)
	return func() error {
		if err := p.join(p.spare, "head", "replace", p.port(h)); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(p.Context(), testhead.Timeout)
		defer cancel()
		return testhead.Eventually(ctx, func() error {
			if !p.isMember(p.port(p.spare)) {
				return fmt.Errorf("%s is no member", p.port(p.spare))
			}
			return nil
		})
	}, err
}

// mustBeAt checks the current step of the run, once former reports have been written.
func (p *passage) mustBeAt(at point) {
	var step string
	deadline := time.Now().Add(30 * time.Second)
	for ; time.Now().Before(deadline) && p.Context().Err() == nil; time.Sleep(100 * time.Millisecond) {
		w := p.workflow()
		if current := w.Status.Current(); current != nil {
			if step = current.Name; step == at.step {
				return
			}
		}
	}
	p.Errorf("%s: the run is at %q, want %q", at.what, step, at.step)
}

// workflow returns the machine's run; empty if there is none.
func (p *passage) workflow() (w trivet.Workflow) {
	if out, err := p.output("get", "workflows", p.box.name+"-1", "-o", "json"); err == nil {
		if err := json.Unmarshal([]byte(out), &w); err != nil {
			p.Error(err)
		}
	}
	return w
}

// mustBeThrough checks that every point was reached, and that the machine continued after each.
func (p *passage) mustBeThrough() {
	p.Helper()
	p.cable.mu.Lock()
	defer p.cable.mu.Unlock()
	for i, at := range p.points {
		p.Errorf("%s: reached: %v; the machine did not continue with another head", at.what, i == 0 && p.lost != nil)
	}
}

// note counts the bytes of the file that was requested from each head.
func (p *passage) note(f *frame) {
	isRequest := bytes.HasPrefix(f.payload, []byte("GET ")) || bytes.HasPrefix(f.payload, []byte("POST "))
	if f.receiver != nil && f.tcp && isRequest {
		line, _, _ := strings.Cut(string(f.payload), "\r\n")
		if last := p.fetches[f.receiver]; last == nil || last.request != line {
			p.fetches[f.receiver] = &transit{request: line}
		}
	}
	if on := p.fetches[f.sender]; on != nil && f.tcp && f.source.Port() == bootPort {
		on.bytes += len(f.payload)
	}
}

const bootPort = 7481

// sends returns the head that is in the middle of a file.
func (p *passage) sends(request string, bytes int) func(*frame) *head {
	return func(f *frame) *head {
		if on := p.fetches[f.sender]; on != nil && strings.HasPrefix(on.request, request) && on.bytes >= bytes {
			return f.sender
		}
		return nil
	}
}

// asked returns the head that receives an HTTP request.
func (p *passage) asked(request string) func(*frame) *head {
	return func(f *frame) *head {
		if f.tcp && bytes.HasPrefix(f.payload, []byte(request)) {
			return f.receiver
		}
		return nil
	}
}

func (p *passage) offers(f *frame) *head { return p.answers(f, dhcpv4.MessageTypeOffer) }

// acknowledges returns the head that acknowledges another one's offer, with that one's identifier.
func (p *passage) acknowledges(f *frame) *head { return p.answers(f, dhcpv4.MessageTypeAck) }

func (p *passage) answers(f *frame, kind dhcpv4.MessageType) *head {
	if f.sender == nil || f.tcp || f.source.Port() != dhcpv4.ServerPort {
		return nil
	}
	m, err := dhcpv4.FromBytes(f.payload)
	if err != nil || m.MessageType() != kind || !bytes.Equal(m.ClientHWAddr, p.box.MAC) {
		return nil
	}
	if id := m.ServerIdentifier(); p.lost != nil && id.String() != p.lost.address {
		p.Errorf("%s acknowledges an offer of %s, not of %s: the machine started again", p.port(f.sender), id,
			p.lost.address)
	}
	return f.sender
}

// Numbers of RFC 1350. A program is some hundred blocks.
const (
	tftpPort      = 69
	tftpRead      = 1
	tftpData      = 3
	middleOfTFTP  = 10
	tftpMinPacket = 4
)

// sendsProgram returns the head that is in the middle of iPXE.
func (p *passage) sendsProgram(f *frame) *head {
	if f.tcp || len(f.payload) < tftpMinPacket || f.source.Port() == dhcpv4.ServerPort {
		return nil
	}
	if be16(f.payload) == tftpData && be16(f.payload[2:]) >= middleOfTFTP {
		return f.sender
	}
	return nil
}

// askedForProgram returns the head that receives a new request for iPXE, by TFTP or HTTP.
func (p *passage) askedForProgram(f *frame) *head {
	if !f.tcp && f.target.Port() == tftpPort && len(f.payload) >= tftpMinPacket && be16(f.payload) == tftpRead {
		return f.receiver
	}
	return p.asked("GET /ipxe/")(f)
}
