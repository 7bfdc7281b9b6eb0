// Compiles and runs a script: classes, strings, and an exception that is caught.
#include <angelscript.h>
#include <cstdio>
#include <stdexcept>
#include <string>
#include "scriptarray/scriptarray.h"
#include "scriptbuilder/scriptbuilder.h"
#include "scriptdictionary/scriptdictionary.h"
#include "scripthelper/scripthelper.h"
#include "scriptstdstring/scriptstdstring.h"

static void say(const asSMessageInfo *m, void *) { std::printf("%s:%d: %s\n", m->section, m->row, m->message); }

static const char *text =
	"class P { int x; P(int v) { x = v; } int twice() { return 2 * x; } }\n"
	"int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }\n"
	"int main() { string s; for (int i = 0; i < 20; i++) { P p(fib(i)); s += p.twice() + \",\"; }\n"
	"  return int(s.length()) + fib(18); }\n";

int main() {
	asIScriptEngine *engine = asCreateScriptEngine();
	engine->SetMessageCallback(asFUNCTION(say), 0, asCALL_CDECL);
	RegisterStdString(engine);
	RegisterScriptArray(engine, true);
	RegisterScriptDictionary(engine);
	CScriptBuilder builder;
	try {
		if (builder.StartNewModule(engine, "m") < 0 || builder.AddSectionFromMemory("s", text) < 0 || builder.BuildModule() < 0)
			throw std::runtime_error("the script is not understood");
		asIScriptContext *context = engine->CreateContext();
		context->Prepare(engine->GetModule("m")->GetFunctionByDecl("int main()"));
		if (context->Execute() != asEXECUTION_FINISHED)
			throw std::runtime_error(GetExceptionInfo(context));
		std::printf("%d\n", int(context->GetReturnDWord()));
		context->Release();
		engine->ShutDownAndRelease();
		throw std::out_of_range("done");
	} catch (const std::out_of_range &e) {
		return std::puts(e.what()) < 0;
	} catch (const std::exception &e) {
		return std::puts(e.what()), 1;
	}
}
