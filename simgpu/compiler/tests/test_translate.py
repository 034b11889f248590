"""What CUDA C++ becomes."""

import unittest

from launches import SourceError
from translate import translate


def plain(text):
    """Without spaces where they mean nothing."""
    return "".join(text.split())


class Launches(unittest.TestCase):
    def check(self, source, expected):
        self.assertEqual(plain(translate(source)), plain(expected.replace("CONFIG", "::simgpu::LaunchConfiguration")))

    def test_become_calls_under_a_configuration(self):
        self.check("f<<<1, 2>>>();", "(CONFIG(1, 2), f());")
        self.check("f<<<grid, dim3(32, 4), n * sizeof(float), stream>>>(a, b);",
                   "(CONFIG(grid, dim3(32, 4), n * sizeof(float), stream), f(a, b));")

    def test_are_expressions_of_any_statement(self):
        self.check("if (x) f<<<1, 2>>>(); else return f<<<3, 4>>>();",
                   "if (x) (CONFIG(1, 2), f()); else return (CONFIG(3, 4), f());")
        self.check("CHECK((f<<<1, 2>>>(), cudaGetLastError()));", "CHECK(((CONFIG(1, 2), f()), cudaGetLastError()));")
        self.check("a, f<<<1, 2>>>(1), g<<<3, 4>>>(2);", "a, (CONFIG(1, 2), f(1)), (CONFIG(3, 4), g(2));")

    def test_name_kernels_by_any_expression(self):
        for kernel in ("f", "::f", "app::inner::f", "f<float>", "f<A<B<int>>, (3 > 2)>", "app::S<int>::f", "table[i + 1]",
                       "pick(3)", "(fast ? f : g)", "object.member", "object->template member<int>"):
            self.check(f"{{ {kernel}<<<1, 2>>>(x); }}", f"{{ (CONFIG(1, 2), {kernel}(x)); }}")

    def test_take_values_with_brackets_shifts_and_comparisons(self):
        for values in ("n >> 1, 2", "a < b, 2", "f<A<B<1>>>(), 2", "g<int>(1, 2), h([] { return 1 > 0; })", "{1, 2}, {3}",
                       "grid<3>::value, 2, x[a > b]"):
            self.check(f"f<<<{values}>>>(x);", f"(CONFIG({values}), f(x));")

    def test_stand_within_launches(self):
        self.check("f<<<1, 2>>>([] { g<<<3, 4>>>(); return 1; }());", "(CONFIG(1, 2), f([] { (CONFIG(3, 4), g()); return 1; }()));")

    def test_are_none_in_comments_texts_and_operators(self):
        for source in ('"f<<<1, 2>>>(a)"', 'R"x(f<<<1, 2>>>(a) ")x"', "// f<<<1, 2>>>(a)\n", "/* f<<<1, 2>>>(a) */", "'<'",
                       "std::operator<<<char>(out, text);", "A<B<C<int>>> x;", "a << b; c >> d; 1'000 < 2;"):
            self.assertEqual(translate(source + " __shared__ int x;"), source + " static thread_local int x;")

    def test_keep_their_lines(self):
        source = "a;\nf<int,\n  char><<<1,\n# 7 \"other.cu\"\n 2>>>\n(x,\n y);\nb;"
        translated = translate(source)
        self.assertEqual(translated.count("\n"), source.count("\n"))
        self.assertIn('\n# 7 "other.cu"\n', translated)
        self.assertTrue(translated.endswith("\n y));\nb;"))

    def test_that_are_wrong_are_told_by_their_place(self):
        for source, what in (("  f<<<1>>>();", "takes 2 to 4 values"), ("  f<<<1, 2, 3, 4, 5>>>();", "here are 5"),
                             ("  f<<<1, 2>>>;", "arguments of the launch"), ("  f<<<1, 2;", "has no >>>")):
            with self.assertRaisesRegex(SourceError, what) as caught:
                translate(source)
            self.assertLess(caught.exception.position, len(source))


class Kernels(unittest.TestCase):
    def entry(self, name, types="", values=""):
        return plain(f"{{ if (::simgpu::is_launching()) {{ ::simgpu::launch_kernel<{types}>(&{name}{values}); return; }}")

    def parameter(self, *names):
        return ", ".join(f"::simgpu::Parameter<decltype({name})>" for name in names)

    def check(self, source, name, *parameters):
        values = "".join(f", {each}" for each in parameters)
        self.assertIn(self.entry(name, self.parameter(*parameters), values), plain(translate(source)))

    def test_begin_with_the_question_who_calls(self):
        self.check("__global__ void f() { g(); }", "f")
        self.check("__global__ void f(void) { g(); }", "f")
        self.check("static __global__ void __attribute__((x(3))) f(int n) { }", "f", "n")
        self.check('extern "C" __global__ void f(const float* __restrict x, int n = 3) { }', "f", "x", "n")

    def test_name_parameters_of_all_forms(self):
        self.check("__global__ void f(float x[], const A<B, C> y, float (&z)[3], void (*w)(int)) { }", "f", "x", "y", "z", "w")
        self.check("__global__ void f(unsigned, const A, ns::B*, A<3>, int n) { }", "f",
                   "simgpu_p0", "simgpu_p1", "simgpu_p2", "simgpu_p3", "n")
        self.assertIn("const A simgpu_p1, ns::B* simgpu_p2", translate("__global__ void f(unsigned, const A, ns::B*) { }"))

    def test_of_templates_name_their_instance(self):
        self.check("template <class T, int N = 3, template <class> class V> __global__ void f(T x) { }", "f<T, N, V>", "x")
        self.check("template <typename, bool> __global__ void f(int x) { }", "f<simgpu_T0, simgpu_T1>", "x")
        self.check("template <> __global__ void f<float>(float* x) { }", "f<float>", "x")
        translated = plain(translate("template <class... Ts> __global__ void f(Ts... xs) { }"))
        self.assertIn("launch_kernel<::simgpu::Parameter<decltype(xs)>...>(&f<Ts...>,xs...)", translated)

    def test_that_are_declared_only_stay(self):
        self.assertEqual(plain(translate("__global__ void f(int); template __global__ void g<int>(int*);")),
                         plain("__attribute__((noinline)) void f(int); template __attribute__((noinline)) void g<int>(int*);"))


class Shared(unittest.TestCase):
    def test_variables_are_of_the_block(self):
        self.assertEqual(translate("void f() { __shared__ float x[3]; }"), "void f() { static thread_local float x[3]; }")
        self.assertEqual(plain(translate("static __shared__ int x;")), plain("static thread_local int x;"))

    def test_dynamic_arrays_are_references_to_the_block_s_memory(self):
        for declared, expected in (
                ("extern __shared__ float x[];", "float (&x)[] = *static_cast<float (*)[]>(M);"),
                ("extern __shared__ __attribute__((aligned(16))) unsigned char x[];",
                 "unsigned char (&x)[] = *static_cast<unsigned char (*)[]>(M);"),
                ("__shared__ extern char* x[][32];", "char* (&x)[][32] = *static_cast<char* (*)[][32]>(M);")):
            self.assertEqual(plain(translate(f"void f() {{ {declared} }}")),
                             plain(f"void f() {{ {expected} }}".replace("M", "::simgpu::dynamic_shared_memory()")))

    def test_dynamic_arrays_outside_of_functions_are_static(self):
        for around in ("%s", "namespace a { %s }", 'extern "C" { %s }', "void f() { } %s"):
            self.assertIn("static float(&x)[]", " ".join(translate(around % "extern __shared__ float x[];").split()).replace("float (", "float("))

    def test_no_array_is_told(self):
        with self.assertRaisesRegex(SourceError, "declares an array"):
            translate("void f() { extern __shared__ float x; }")


BESIDE_OTHERS = '__attribute__((section("simgpu_variables"), unused))'


class Variables(unittest.TestCase):
    MADE = '= ::simgpu::device_variable(simgpu_copy_of_{0}, "{0}", ::simgpu::VariableKind::{1}, {2});'

    def check(self, source, expected):
        self.assertEqual(plain(translate(source)), plain(expected.replace("BESIDE_OTHERS", BESIDE_OTHERS)))

    def test_of_the_device_are_references(self):
        self.check("__device__ int x;", "static int simgpu_copy_of_x; static BESIDE_OTHERS decltype(simgpu_copy_of_x)& x"
                   + self.MADE.format("x", "device", "false"))
        self.check("namespace n { static __constant__ const A<b, c> *x[2] = {f(1, 2), {3}}; }",
                   "namespace n { static const A<b, c> *simgpu_copy_of_x[2] = {f(1, 2), {3}};"
                   "static BESIDE_OTHERS decltype(simgpu_copy_of_x)& x" + self.MADE.format("x", "constant", "true") + "}")

    def test_may_be_declared_several_at_once(self):
        translated = translate("__device__ struct S { int a, b; } x, *y = nullptr, z{1};")
        self.assertIn("struct S { int a, b; } simgpu_copy_of_x, *simgpu_copy_of_y = nullptr, simgpu_copy_of_z{1};", translated)
        for name, has_value in (("x", "false"), ("y", "true"), ("z", "true")):
            self.assertIn(plain(self.MADE.format(name, "device", has_value)), plain(translated))

    def test_of_other_sources_are_declared(self):
        translated = plain(translate("extern __device__ int x[]; __device__ int x[2];"))
        self.assertIn("extern int simgpu_copy_of_x[]; extern BESIDE_OTHERS decltype(simgpu_copy_of_x)& x;".replace("BESIDE_OTHERS", BESIDE_OTHERS).replace(" ", ""), translated)
        self.assertNotIn("static", translated)

    def test_are_no_functions_members_constants_or_managed_memory(self):
        for source in ("__device__ int f(int x = 3);", "template <class T> __device__ T f(T) { return 1; }", "struct S { __device__ S(); static __device__ int x; };",
                       "auto f = [=] __device__ (int i) { return i; };", "__device__ const int x = 3;", "constexpr __device__ int x = 3;",
                       "__device__ bool operator=(S);", "__device__ A::A() : x{1} {}", "__device__ __managed__ int x;", "__device__ int A::x = 3;",
                       "void f() { static __device__ int x; }"):
            self.check(source, source.replace("__device__", "").replace("__managed__", ""))


class Headers(unittest.TestCase):
    def test_of_the_system_may_have_functions_for_the_device(self):
        source = '# 1 "a.cu"\n__device__ int f();\n# 1 "/usr/include/x.h" 1 3\n__device__ int g();\n'
        self.assertNotIn("__device__", translate(source))

    def test_of_the_system_are_left_alone(self):
        source = '# 1 "a.cu"\nf<<<1, 2>>>();\n# 1 "/usr/include/x.h" 1 3\ng<<<1, 2>>>();\n# 3 "a.cu" 2\nh<<<1, 2>>>();'
        translated = translate(source)
        self.assertIn("\ng<<<1, 2>>>();\n", translated)
        self.assertEqual(translated.count("LaunchConfiguration"), 2)

    def test_may_have_noinline_in_attributes(self):
        self.assertEqual(translate("__attribute__((__noinline__)) a; x __noinline__ b;"), "__attribute__((__noinline__)) a; x  b;")


if __name__ == "__main__":
    unittest.main()
