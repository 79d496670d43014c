package main

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// sharing is the session manager, and the session that it lets others clone. That one lives in the process: not counted, not
// broken by rules, and not made to expire.
type sharing struct {
	world *world

	mutex  sync.Mutex
	cookie *http.Cookie
	// rest is a session of REST for those of SOAP that it takes in place of its own
	rest *rest
}

// ticket is good for one clone of the original, which is opened at first.
func (s *sharing) ticket() (string, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.cookie == nil {
		s.world.mutex.Lock()
		login := fmt.Sprintf("<userName>%s</userName><password>%s</password>", escape(s.world.user), escape(s.world.password))
		s.world.mutex.Unlock()
		answer, err := s.call("Login", login)
		if err != nil {
			return "", err
		}
		for _, cookie := range answer.Result().Cookies() {
			if cookie.Name == soapCookie {
				s.cookie = cookie
			}
		}
	}
	answer, err := s.call("AcquireCloneTicket", "")
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(answer.Body.String(), "<returnval>")
	ticket, _, found := strings.Cut(rest, "</returnval>")
	if !found {
		return "", fmt.Errorf("no ticket in %s", answer.Body)
	}
	return ticket, nil
}

func (s *sharing) register(mux *http.ServeMux) {
	handle(mux, "GET /original", func(struct{}) (any, error) { return s.isOriginalAlive(), nil })
}

// isOriginalAlive says whether the session that was cloned still is. The caller holds no lock.
func (s *sharing) isOriginalAlive() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.cookie == nil {
		return false
	}
	_, err := s.call("AcquireCloneTicket", "")
	return err == nil
}

func (s *sharing) call(method, arguments string) (*httptest.ResponseRecorder, error) {
	body := fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?>
<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body><%[1]s xmlns="urn:vim25"><_this type="SessionManager">SessionManager</_this>%[2]s</%[1]s></Body></Envelope>`, method, arguments)
	request := httptest.NewRequest(http.MethodPost, "/sdk", strings.NewReader(body))
	if s.cookie != nil {
		request.AddCookie(s.cookie)
	}
	answer := httptest.NewRecorder()
	s.world.backend.ServeHTTP(answer, request)
	if answer.Code/100 != 2 {
		return nil, fmt.Errorf("%s: status %d: %s", method, answer.Code, answer.Body)
	}
	return answer, nil
}

// borrow gives a REST session in place of a SOAP session that is alive.
func (s *sharing) borrow(soap string) string {
	s.world.front.mutex.Lock()
	isAlive := false
	for _, key := range s.world.liveSessions() {
		isAlive = isAlive || key == soap
	}
	s.world.front.mutex.Unlock()
	if !isAlive {
		return ""
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.rest == nil {
		opened, err := s.world.openRest()
		if err != nil {
			return ""
		}
		s.rest = opened
	}
	return s.rest.session
}

func escape(text string) string {
	var escaped strings.Builder
	_ = xml.EscapeText(&escaped, []byte(text))
	return escaped.String()
}
