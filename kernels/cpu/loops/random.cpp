#include "functional/random.hpp"

#include "cpu/loops/random_words.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

constexpr int words_at_once = 256;

/// Calls `body(words, offset, count)` for groups of up to 256 elements; offsets are even.
template <class Body>
LOCKSTEP_ALWAYS_INLINE void for_words(std::int64_t n, const RandomArguments& arguments, Body body) {
  std::uint32_t words[words_at_once];
  // The first group may begin inside a block.
  std::int64_t skip = arguments.first % 4;
  for (std::int64_t i = 0; i < n;) {
    random_words<words_at_once>(words, arguments.state, arguments.first + i - skip);
    const std::int64_t room = words_at_once - skip;
    const std::int64_t count = n - i < room ? n - i : room;
    body(words + skip, i, count);
    i += count;
    skip = 0;
  }
}

template <class T>
void uniform(void* out, std::int64_t n, const RandomArguments& arguments) {
  const functional::UniformDraw<T> draw{static_cast<T>(arguments.a), static_cast<T>(arguments.b)};
  T* const to = static_cast<T*>(out);
  for_words(n, arguments, [&](const std::uint32_t* words, std::int64_t at, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[at + i] = draw(words[i]);
  });
}

/// `first` is even here, so that pairs stay together.
template <class T>
void normal(void* out, std::int64_t n, const RandomArguments& arguments) {
  const functional::NormalDraw<T> draw{static_cast<T>(arguments.a), static_cast<T>(arguments.b)};
  T* const to = static_cast<T*>(out);
  for_words(n, arguments, [&](const std::uint32_t* words, std::int64_t at, std::int64_t count) {
    T value[words_at_once];
    for (std::int64_t i = 0; i < (count + 1) / 2; ++i)
      draw(words[2 * i], words[2 * i + 1], value[2 * i], value[2 * i + 1]);
    for (std::int64_t i = 0; i < count; ++i) to[at + i] = value[i];
  });
}

template <class T>
void dropout(void* out, const void* x, std::int64_t n, const RandomArguments& arguments) {
  const functional::DropoutDraw<T> draw{static_cast<float>(arguments.a),
                                        static_cast<T>(arguments.b)};
  T* const to = static_cast<T*>(out);
  const T* const from = static_cast<const T*>(x);
  for_words(n, arguments, [&](const std::uint32_t* words, std::int64_t at, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[at + i] = draw(words[i], from[at + i]);
  });
}

template <class T>
void add_type(Loops& loops) {
  loops.uniform.at(accumulate_tag<T>, 0) = uniform<T>;
  loops.normal.at(accumulate_tag<T>, 0) = normal<T>;
  loops.dropout.at(accumulate_tag<T>, 0) = dropout<T>;
}

}  // namespace

void fill_random(Loops& loops) {
  add_type<float>(loops);
  add_type<double>(loops);
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
