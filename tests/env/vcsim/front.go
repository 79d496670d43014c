package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"
)

const (
	soapCookie = "vmware_soap_session"
	restHeader = "vmware-api-session-id"
	legacyRest = "/rest/com/vmware"
)

// front stands before the simulator: it counts every call by its method, and breaks those that the rules name.
type front struct {
	simulator http.Handler
	rest      string
	quote     bool
	// token is what the session manager wants to be shown
	token string
	// expire ends every session
	expire func()
	// ticket gives a ticket with which a session is cloned
	ticket func() (string, error)
	// borrow gives a REST session for a SOAP session that is alive; nil where REST takes only its own
	borrow func(soap string) string

	// called is told of every call that has taken place
	called func(name string, body []byte)
	// modules answer the calls of the cluster modules
	modules *modules
	// instead answers a call in the place of the simulator; false leaves it alone
	instead func(w http.ResponseWriter, name string, body []byte) bool

	mutex  sync.Mutex
	counts map[string]int
	rules  []*rule
	// session keys ever given, by kind, and those that were made to expire
	soapSessions map[string]string
	restSessions map[string]bool
	revoked      map[string]bool
	// body of the last request of each method
	last map[string]string
}

// rule says what happens to calls instead of, or before, their answer.
type rule struct {
	// Methods are names as counted, such as "soap:Login" or "rest:POST /session"; "*" is all, a trailing "*" a prefix.
	Methods []string `json:"methods"`
	// Except are names that the rule does not touch.
	Except []string `json:"except"`
	// Probability that a call is hit; 0 means 1.
	Probability float64 `json:"probability"`
	// DelayMillis is how long the call waits first; with After, its answer.
	DelayMillis int `json:"delayMillis"`
	// Fault is the type of the SOAP fault answered, such as "NotAuthenticated".
	Fault string `json:"fault"`
	// Status is the HTTP status answered with an empty body.
	Status int `json:"status"`
	// Drop closes the connection without an answer.
	Drop bool `json:"drop"`
	// Hang never answers. It ends when the client goes away.
	Hang bool `json:"hang"`
	// LoseTask answers with a task that does not exist.
	LoseTask bool `json:"loseTask"`
	// After lets the call happen and only then hides its answer.
	After bool `json:"after"`
	// Times is how often the rule holds; 0 is for ever.
	Times int `json:"times"`
	// Skip is how many calls are let through first.
	Skip int `json:"skip"`
	// Expire ends every session before the call takes place.
	Expire bool `json:"expire"`
	// Every lets all calls through but each one of this number: 2 hits the first, the third, ...
	Every int `json:"every"`
	// calls that the rule was asked about so far
	seen int
}

func (r *rule) delay() {
	time.Sleep(time.Duration(r.DelayMillis) * time.Millisecond)
}

func newFront(simulator http.Handler, rest string, quote bool) *front {
	return &front{
		simulator: simulator, rest: rest, quote: quote,
		counts: map[string]int{}, soapSessions: map[string]string{}, restSessions: map[string]bool{},
		revoked: map[string]bool{}, last: map[string]string{},
	}
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	name := methodName(r, body)
	hit := f.note(name, string(body))
	if hit != nil {
		if !hit.After {
			hit.delay()
		}
		if hit.Expire {
			f.expire()
		}
		if !hit.After && f.fail(w, r, hit, name) {
			return
		}
	}
	recorder := httptest.NewRecorder()
	r.Body = io.NopCloser(bytes.NewReader(body))
	if cookie, err := r.Cookie(soapCookie); err == nil && f.quote {
		// A real vCenter compares the cookie byte for byte, with its quotes.
		if !strings.Contains(r.Header.Get("Cookie"), `"`) {
			r.Header.Del("Cookie")
		} else {
			r.Header.Set("Cookie", soapCookie+"="+strings.Trim(cookie.Value, `"`))
		}
	}
	if !f.serveTicket(recorder, r) && !f.modules.serve(recorder, r, body) && !f.serveRest(recorder, r, body) && !f.instead(recorder, name, body) {
		f.simulator.ServeHTTP(recorder, r)
		f.called(name, body)
	}
	f.noteSession(name, recorder)
	if hit != nil && hit.After {
		hit.delay()
		if f.fail(w, r, hit, name) {
			return
		}
	}
	for key, values := range recorder.Header() {
		for _, value := range values {
			if key == "Set-Cookie" && f.quote && strings.HasPrefix(value, soapCookie+"=") {
				session, rest, _ := strings.Cut(strings.TrimPrefix(value, soapCookie+"="), ";")
				value = fmt.Sprintf(`%s="%s"; Path=/;%s`, soapCookie, session, rest)
			}
			w.Header().Add(key, value)
		}
	}
	w.WriteHeader(recorder.Code)
	_, _ = w.Write(recorder.Body.Bytes())
}

// soapPaths are those of SOAP, with what the names of their methods begin with.
var soapPaths = map[string]string{"/sdk": "soap:", "/pbm": "pbm:"}

// methodName is the name under which a call is counted.
func methodName(r *http.Request, body []byte) string {
	if kind, isSoap := soapPaths[r.URL.Path]; isSoap {
		decoder := xml.NewDecoder(bytes.NewReader(body))
		inBody := false
		for {
			token, err := decoder.Token()
			if err != nil {
				return kind + "?"
			}
			if start, ok := token.(xml.StartElement); ok {
				if inBody {
					return kind + start.Name.Local
				}
				inBody = start.Name.Local == "Body"
			}
		}
	}
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, legacyRest), "/api")
	path = strings.TrimPrefix(path, "/cis")
	if below, _, isOne := modulePath(r); isOne {
		path = modulesPath
		switch {
		case strings.HasPrefix(below, "vm/"):
			path += "/vm/ID/members"
		case below != "":
			path += "/ID"
		}
	}
	action := r.URL.Query().Get("~action") + r.URL.Query().Get("action")
	if action != "" {
		action = "?" + action
	}
	for _, kind := range []string{"/tagging/tag/", "/tagging/category/", "/tagging/tag-association/"} {
		if strings.HasPrefix(path, kind) {
			path = kind + "ID"
		}
	}
	return "rest:" + r.Method + " " + path + action
}

// note counts a call and picks the rule that hits it.
func (f *front) note(name, body string) *rule {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.counts[name]++
	f.last[name] = body
	for _, rule := range f.rules {
		if !matches(rule.Methods, name) || matches(rule.Except, name) {
			continue
		}
		if rule.Skip > 0 {
			rule.Skip--
			continue
		}
		rule.seen++
		if rule.Every > 1 && rule.seen%rule.Every != 1 {
			continue
		}
		if rule.Times < 0 || (rule.Probability > 0 && rand.Float64() >= rule.Probability) {
			continue
		}
		if rule.Times > 0 {
			rule.Times--
			if rule.Times == 0 {
				rule.Times = -1
			}
		}
		f.counts["hit:"+name]++
		copied := *rule
		return &copied
	}
	return nil
}

func matches(patterns []string, name string) bool {
	for _, pattern := range patterns {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		if pattern == name || isPrefix && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// fail answers as the rule says; false if the rule only delays.
func (f *front) fail(w http.ResponseWriter, r *http.Request, hit *rule, name string) bool {
	switch {
	case hit.Hang:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case hit.LoseTask:
		answerTask(w, strings.TrimPrefix(name, "soap:"), "task-lost")
	case hit.Drop:
		if hijacker, ok := w.(http.Hijacker); ok {
			if connection, _, err := hijacker.Hijack(); err == nil {
				_ = connection.Close()
				return true
			}
		}
		panic(http.ErrAbortHandler)
	case hit.Fault != "":
		w.Header().Set("Content-Type", "text/xml; charset=utf-8")
		w.WriteHeader(http.StatusInternalServerError)
		// in the words and with the prefixes of a real vCenter
		fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenc="http://schemas.xmlsoap.org/soap/encoding/" xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsd="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body><soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>injected by the test</faultstring><detail><%[1]sFault xmlns="urn:vim25" xsi:type="%[1]s"></%[1]sFault></detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>`, hit.Fault)
	case hit.Status != 0:
		w.WriteHeader(hit.Status)
	default:
		return false
	}
	return true
}

// noteSession remembers the sessions that are given.
func (f *front) noteSession(name string, answer *httptest.ResponseRecorder) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for _, cookie := range answer.Result().Cookies() {
		if cookie.Name == soapCookie {
			f.soapSessions[cookie.Value] = userName(answer.Body.Bytes())
		}
	}
	if name == "rest:POST /session" && answer.Code/100 == 2 {
		f.restSessions[sessionID(answer.Body.Bytes())] = true
	}
}

// userName is that of the session in the answer to a login, or to what takes its place.
func userName(body []byte) string {
	_, rest, _ := strings.Cut(string(body), "<userName>")
	name, _, _ := strings.Cut(rest, "</userName>")
	return name
}

func sessionID(body []byte) string {
	var wrapped struct {
		Value string `json:"value"`
	}
	if json.Unmarshal(body, &wrapped) == nil && wrapped.Value != "" {
		return wrapped.Value
	}
	var bare string
	_ = json.Unmarshal(body, &bare)
	return bare
}

// serveTicket is a session manager: who shows its token gets a ticket. False where something else is asked for.
func (f *front) serveTicket(w *httptest.ResponseRecorder, r *http.Request) bool {
	if r.URL.Path != "/session-manager" {
		return false
	}
	if r.Method != http.MethodGet || r.Header.Get("Authorization") != "Bearer "+f.token {
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	ticket, err := f.ticket()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return true
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"token": ticket})
	return true
}

// serveRest answers REST calls that the simulator would answer otherwise: those of expired sessions, and those in the
// newer dialect, which the simulator does not know. False leaves the call to the simulator.
func (f *front) serveRest(w *httptest.ResponseRecorder, r *http.Request, body []byte) bool {
	isModern := strings.HasPrefix(r.URL.Path, "/api/cis/") || r.URL.Path == "/api/session"
	isLegacy := strings.HasPrefix(r.URL.Path, legacyRest)
	if !isModern && !isLegacy {
		return false
	}
	f.mutex.Lock()
	session := r.Header.Get(restHeader)
	isRevoked := f.revoked[session]
	if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/session") {
		delete(f.restSessions, session)
	}
	f.mutex.Unlock()
	switch {
	case isModern && f.rest == "legacy", isLegacy && f.rest == "modern":
		w.WriteHeader(http.StatusNotFound)
		return true
	case isRevoked:
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	if f.borrow != nil && session != "" {
		if own := f.borrow(session); own != "" {
			r.Header.Set(restHeader, own)
		}
	}
	switch {
	case isLegacy:
		return false
	}
	f.serveModern(w, r, body)
	return true
}

// serveModern translates a call of the newer dialect, and its answer.
func (f *front) serveModern(w *httptest.ResponseRecorder, r *http.Request, body []byte) {
	path := strings.TrimPrefix(r.URL.Path, "/api")
	if path == "/session" {
		path = "/cis/session"
	}
	for _, kind := range []string{"/cis/tagging/tag/", "/cis/tagging/category/", "/cis/tagging/tag-association/"} {
		if id, ok := strings.CutPrefix(path, kind); ok {
			path = kind + "id:" + id
		}
	}
	if path == "/cis/tagging/tag" && r.URL.Query().Get("action") == "list-tags-for-category" {
		var spec struct {
			Category string `json:"category_id"`
		}
		_ = json.Unmarshal(body, &spec)
		path += "/id:" + spec.Category
	}
	inner := r.Clone(r.Context())
	inner.URL.Path = legacyRest + path
	query := inner.URL.Query()
	if action := query.Get("action"); action != "" {
		query.Del("action")
		query.Set("~action", action)
	}
	inner.URL.RawQuery = query.Encode()
	inner.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	f.simulator.ServeHTTP(answer, inner)
	for key, values := range answer.Header() {
		w.Header()[key] = values
	}
	w.Header().Del("Content-Length")
	w.WriteHeader(answer.Code)
	var wrapped struct {
		Value json.RawMessage `json:"value"`
	}
	if answer.Code/100 == 2 && json.Unmarshal(answer.Body.Bytes(), &wrapped) == nil {
		if wrapped.Value == nil || string(wrapped.Value) == "null" {
			wrapped.Value = []byte("[]")
		}
		_, _ = w.Write(wrapped.Value)
		return
	}
	_, _ = w.Write(answer.Body.Bytes())
}
