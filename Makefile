# Builds the tools, the manual pages and completions, and installs them. For POSIX and GNU make.
#
#   make                                  builds everything; needs only Go, and a C compiler for sframe-run
#   make install PREFIX=/usr DESTDIR=...  installs everything, below DESTDIR if it is set; with rpm, also the macros for
#                                         rpmbuild, unless RPMDIR is empty or PREFIX is neither /usr nor /usr/local
#   make uninstall PREFIX=/usr
#   make quick                            builds everything, and tests the packages that convert, in about 20 seconds
#   make check                            runs the checks and tests, as scripts/test does
#
# --version prints VERSION, such as 1.2. If it is empty, Go derives a version from the repository.
.POSIX:

GO = go
CC = cc
CFLAGS = -O2
VERSION =
DESTDIR =
PREFIX = /usr/local
BINDIR = $(PREFIX)/bin
LIBDIR = $(PREFIX)/lib
INCLUDEDIR = $(PREFIX)/include
DATADIR = $(PREFIX)/share
LIBEXECDIR = $(PREFIX)/libexec
MANDIR = $(DATADIR)/man
DOCDIR = $(DATADIR)/doc/cfi2sframe
BASHDIR = $(DATADIR)/bash-completion/completions
ZSHDIR = $(DATADIR)/zsh/site-functions
FISHDIR = $(DATADIR)/fish/vendor_completions.d
RPMDIR = /etc/rpm
SHAREDIR = $(DATADIR)/cfi2sframe

# Names of linkers that "cfi2sframe ld" runs in place of. LINKDIR also contains cc.
LINKS = ld ld.bfd ld.gold ld.lld ld.mold
TARGETS = x86_64-linux-gnu aarch64-linux-gnu s390x-linux-gnu
LINKDIR = $(LIBEXECDIR)/cfi2sframe

# Commands in integrations/ that are installed.
COMMANDS = debian/convert-deb rootfs/sframe-rootfs cargo/cfi2sframe-cc go/cfi2sframe-toolexec
# /etc is not for an installation in a home directory.
HASRPMDIR = [ -n "$(RPMDIR)" ] && case '$(PREFIX)' in /usr|/usr/local) ;; *) false ;; esac

# The packages that a row passes through.
CORE = ./cfi ./elffile ./elfwrite ./emit ./internal/arch ./internal/padding ./internal/plt ./sframe ./translate ./verify

# The library that takes stack traces with .sframe, and sframe-run; the archive is for programs that are linked with
# --wrap.
BACKTRACE = $(CC) -std=gnu11 $(CFLAGS) -fPIC -fvisibility=hidden -fno-lto
SOURCES = walker/backtrace.c walker/libunwind.c walker/files.c

.PHONY: all backtrace install uninstall quick check clean

# cfi2sframe may be built for another machine (GOOS, GOARCH). scripts/manual runs build/native, which is for this one.
all:
	mkdir -p build
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-w -X main.version=$(VERSION)' -o build/cfi2sframe ./cmd/cfi2sframe
	if [ "$$($(GO) env GOOS GOARCH)" = "$$($(GO) env GOHOSTOS GOHOSTARCH)" ]; then \
		cp -f build/cfi2sframe build/native; \
	else unset GOOS GOARCH; CGO_ENABLED=0 $(GO) build -o build/native ./cmd/cfi2sframe; fi
	scripts/manual build/native build
	@if $(CC) -E walker/backtrace.c >/dev/null 2>&1; then $(MAKE) backtrace; else \
		echo "libsframe-backtrace and sframe-run are not built:" \
			"they need a C compiler ($(CC)) and glibc 2.35 or later" >&2; fi

backtrace:
	mkdir -p build
	$(BACKTRACE) -shared -Wl,-soname,libsframe-backtrace.so -Wl,-z,now -Wl,-z,nodelete -Wl,-z,initfirst $(LDFLAGS) \
		$(SOURCES) -o build/libsframe-backtrace.so
	rm -f build/libsframe-backtrace.a
	for file in $(SOURCES); do object=build/$$(basename $$file .c).o; \
		$(BACKTRACE) -DSFRAME_BACKTRACE_WRAP -c $$file -o $$object && \
		$(AR) rcs build/libsframe-backtrace.a $$object || exit 1; done
	$(BACKTRACE) -Wl,-z,now $(LDFLAGS) integrations/run/sframe-run.c -o build/sframe-run

# An existing build is installed without building again: root may have no Go.
install:
	@case "$(DESTDIR)" in ""|/*) ;; *) echo "DESTDIR=$(DESTDIR) is not an absolute path" >&2; exit 2 ;; esac
	[ -e build/cfi2sframe.fish ] || $(MAKE) all
	umask 022; mkdir -p "$(DESTDIR)$(BINDIR)" "$(DESTDIR)$(MANDIR)/man1" "$(DESTDIR)$(BASHDIR)" "$(DESTDIR)$(ZSHDIR)" \
		"$(DESTDIR)$(FISHDIR)" "$(DESTDIR)$(DOCDIR)"
	install -m 755 build/cfi2sframe "$(DESTDIR)$(BINDIR)/cfi2sframe"
	if [ -e build/libsframe-backtrace.a ]; then umask 022; \
		mkdir -p "$(DESTDIR)$(LIBDIR)" "$(DESTDIR)$(INCLUDEDIR)" && \
		install -m 755 build/sframe-run "$(DESTDIR)$(BINDIR)" && \
		install -m 644 build/libsframe-backtrace.so build/libsframe-backtrace.a "$(DESTDIR)$(LIBDIR)" && \
		install -m 644 walker/sframe_walker.h walker/sframe_process.h "$(DESTDIR)$(INCLUDEDIR)" && \
		mkdir -p "$(DESTDIR)$(LIBDIR)/pkgconfig" "$(DESTDIR)$(MANDIR)/man7" && \
		sed 's,@LIBDIR@,$(LIBDIR),; s,@INCLUDEDIR@,$(INCLUDEDIR),' walker/sframe-backtrace.pc.in \
			>"$(DESTDIR)$(LIBDIR)/pkgconfig/sframe-backtrace.pc" && \
		install -m 644 integrations/run/sframe-run.1 "$(DESTDIR)$(MANDIR)/man1" && \
		install -m 644 walker/sframe-backtrace.7 "$(DESTDIR)$(MANDIR)/man7"; \
		[ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || :; fi
	install -m 644 build/cfi2sframe.1 "$(DESTDIR)$(MANDIR)/man1"
	install -m 644 build/cfi2sframe.bash "$(DESTDIR)$(BASHDIR)/cfi2sframe"
	install -m 644 build/_cfi2sframe "$(DESTDIR)$(ZSHDIR)/_cfi2sframe"
	install -m 644 build/cfi2sframe.fish "$(DESTDIR)$(FISHDIR)/cfi2sframe.fish"
	umask 022; cd "$(DESTDIR)$(DOCDIR)" && mkdir -p docs walker/examples conformance && \
		ln -sfn ../../cfi2sframe integrations
	install -m 644 README.md CHANGELOG.md CONTRIBUTING.md LICENSE "$(DESTDIR)$(DOCDIR)"
	install -m 644 docs/*.md docs/overview.svg "$(DESTDIR)$(DOCDIR)/docs"
	install -m 644 walker/*.* "$(DESTDIR)$(DOCDIR)/walker"
	install -m 644 walker/examples/* "$(DESTDIR)$(DOCDIR)/walker/examples"
	install -m 644 conformance/README.md "$(DESTDIR)$(DOCDIR)/conformance"
	if build/native ld --help | grep -q -e --print-dir; then \
		umask 022; mkdir -p "$(DESTDIR)$(LINKDIR)" && cd "$(DESTDIR)$(LINKDIR)" || exit 1; \
		to='$(BINDIR)'; [ "$(BINDIR) $(LIBEXECDIR)" != "$(PREFIX)/bin $(PREFIX)/libexec" ] || to=../../bin; \
		for name in $(LINKS); do \
			for link in $$name $(TARGETS:=-$$name); do ln -sf "$$to/cfi2sframe" $$link || exit 1; done; \
		done; \
		ln -sf "$$to/cfi2sframe" cc; \
	fi
	if $(HASRPMDIR) && command -v rpm >/dev/null; then \
		umask 022; mkdir -p "$(DESTDIR)$(RPMDIR)" && \
		install -m 644 integrations/rpm/macros.sframe "$(DESTDIR)$(RPMDIR)"; \
	fi
	umask 022; cd integrations && for file in $(COMMANDS); do \
		install -m 755 "$$file" "$(DESTDIR)$(BINDIR)" || exit 1; \
	done; \
	find * -type f ! -path '*/test*' ! -path 'debian/[!R]*' ! -path 'lib/*' ! -path 'run/[!R]*' ! -name '*.go' \
		! -name '*.spec' | \
	while read -r file; do \
		case ' $(COMMANDS) ' in *" $$file "*) continue ;; esac; \
		mode=644; [ ! -x "$$file" ] || mode=755; \
		mkdir -p "$(DESTDIR)$(SHAREDIR)/$${file%/*}" && \
		install -m $$mode "$$file" "$(DESTDIR)$(SHAREDIR)/$$file" || exit 1; \
		[ "$${file##*/}" != README.md ] || sed 's,(\.\./\.\./docs/,(../../doc/cfi2sframe/docs/,' "$$file" \
			>"$(DESTDIR)$(SHAREDIR)/$$file" || exit 1; \
	done

uninstall:
	rm -f "$(DESTDIR)$(BINDIR)/cfi2sframe" "$(DESTDIR)$(MANDIR)/man1/cfi2sframe.1" \
		"$(DESTDIR)$(BINDIR)/sframe-run" "$(DESTDIR)$(MANDIR)/man1/sframe-run.1" \
		"$(DESTDIR)$(BASHDIR)/cfi2sframe" "$(DESTDIR)$(ZSHDIR)/_cfi2sframe" "$(DESTDIR)$(FISHDIR)/cfi2sframe.fish"
	rm -f "$(DESTDIR)$(LIBDIR)/libsframe-backtrace.so" "$(DESTDIR)$(LIBDIR)/libsframe-backtrace.a" \
		"$(DESTDIR)$(INCLUDEDIR)/sframe_walker.h" "$(DESTDIR)$(INCLUDEDIR)/sframe_process.h" \
		"$(DESTDIR)$(LIBDIR)/pkgconfig/sframe-backtrace.pc" \
		"$(DESTDIR)$(MANDIR)/man7/sframe-backtrace.7"
	rm -rf "$(DESTDIR)$(DOCDIR)" "$(DESTDIR)$(LINKDIR)" "$(DESTDIR)$(SHAREDIR)"
	for file in $(COMMANDS); do rm -f "$(DESTDIR)$(BINDIR)/$${file##*/}"; done
	! { $(HASRPMDIR); } || rm -f "$(DESTDIR)$(RPMDIR)/macros.sframe"

# Without inlining (-l), compilation takes two thirds of the time.
quick:
	$(GO) build -gcflags=cfi2sframe/...=-l -ldflags=-w ./...
	$(GO) test -gcflags=cfi2sframe/...=-l -short -vet=off -ldflags=-w $(CORE)

check:
	scripts/test

clean:
	rm -rf build
