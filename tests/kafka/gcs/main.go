// A Google Cloud Storage server on loopback: fake-gcs-server, which has the JSON interface, and in
// front of it what it lacks of the XML interface: uploads of one part and of several, and lists
// that start after a name (https://cloud.google.com/storage/docs/xml-api/put-object-upload,
// .../multipart-uploads, .../get-bucket-list).
//
//	gcs PORT BUCKET
package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

var entry = regexp.MustCompile(`(?s)<Contents>.*?</Contents>`)

type front struct {
	inner http.Handler
	mu    sync.Mutex
	next  int
	parts map[string]map[string][]byte
}

type completion struct {
	Parts []struct {
		PartNumber string
	} `xml:"Part"`
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	id := query.Get("uploadId")
	switch {
	case strings.HasPrefix(r.URL.Path, "/storage/") || strings.HasPrefix(r.URL.Path, "/upload/"):
		f.inner.ServeHTTP(w, r)
	case r.Method == http.MethodPost && query.Has("uploads"):
		f.begin(w)
	case r.Method == http.MethodPut && id != "":
		f.keep(w, r, id, query.Get("partNumber"))
	case r.Method == http.MethodPost && id != "":
		f.complete(w, r, id)
	case r.Method == http.MethodDelete && id != "":
		f.take(id)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPut:
		f.put(w, r, r.Body)
	case r.Method == http.MethodGet && query.Has("start-after"):
		f.list(w, r, query.Get("start-after"))
	default:
		f.inner.ServeHTTP(w, r)
	}
}

func (f *front) list(w http.ResponseWriter, r *http.Request, after string) {
	answer := httptest.NewRecorder()
	f.inner.ServeHTTP(answer, r)
	w.WriteHeader(answer.Code)
	w.Write(entry.ReplaceAllFunc(answer.Body.Bytes(), func(one []byte) []byte {
		var said struct{ Key string }
		if err := xml.Unmarshal(one, &said); err != nil {
			log.Fatal(err)
		}
		if said.Key <= after {
			return nil
		}
		return one
	}))
}

func (f *front) begin(w http.ResponseWriter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	id := fmt.Sprint(f.next)
	f.parts[id] = map[string][]byte{}
	fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId>"+
		"</InitiateMultipartUploadResult>", id)
}

func (f *front) keep(w http.ResponseWriter, r *http.Request, id, number string) {
	body, err := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	held, known := f.parts[id]
	if err != nil || !known {
		http.Error(w, "NoSuchUpload", http.StatusNotFound)
		return
	}
	held[number] = body
	w.Header().Set("ETag", fmt.Sprintf("%q", number))
}

func (f *front) complete(w http.ResponseWriter, r *http.Request, id string) {
	var said completion
	if err := xml.NewDecoder(r.Body).Decode(&said); err != nil {
		http.Error(w, "MalformedXML", http.StatusBadRequest)
		return
	}
	held, known := f.take(id)
	whole := &bytes.Buffer{}
	for _, one := range said.Parts {
		part, there := held[one.PartNumber]
		known = known && there
		whole.Write(part)
	}
	if !known {
		http.Error(w, "NoSuchUpload", http.StatusNotFound)
		return
	}
	if tag := f.put(w, r, whole); tag != "" {
		fmt.Fprintf(w, "<CompleteMultipartUploadResult><ETag>%s</ETag>"+
			"</CompleteMultipartUploadResult>", tag)
	}
}

func (f *front) take(id string) (map[string][]byte, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	held, known := f.parts[id]
	delete(f.parts, id)
	return held, known
}

// put stores an object by the JSON interface, and answers as the XML interface does.
func (f *front) put(w http.ResponseWriter, r *http.Request, body io.Reader) string {
	bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	query := url.Values{"uploadType": {"media"}, "name": {name}}
	if wanted := r.Header.Get("x-goog-if-generation-match"); wanted != "" {
		query.Set("ifGenerationMatch", wanted)
	}
	to := "/upload/storage/v1/b/" + bucket + "/o?" + query.Encode()
	asked := httptest.NewRequest(http.MethodPost, to, body)
	answer := httptest.NewRecorder()
	f.inner.ServeHTTP(answer, asked)
	if answer.Code != http.StatusOK {
		w.WriteHeader(answer.Code)
		w.Write(answer.Body.Bytes())
		return ""
	}
	var object struct {
		ETag       string
		Generation string
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &object); err != nil {
		log.Fatal(err)
	}
	w.Header().Set("ETag", object.ETag)
	w.Header().Set("x-goog-generation", object.Generation)
	return object.ETag
}

func main() {
	port, bucket := os.Args[1], os.Args[2]
	address := "127.0.0.1:" + port
	server, err := fakestorage.NewServerWithOptions(
		fakestorage.Options{NoListener: true, PublicHost: address, Scheme: "http"},
	)
	if err != nil {
		log.Fatal(err)
	}
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: bucket})
	inner := server.HTTPHandler()
	log.Fatal(http.ListenAndServe(address, &front{inner: inner, parts: map[string]map[string][]byte{}}))
}
