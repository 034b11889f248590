// The caching pool beside malloc: allocate and free of one size again and again (a hit), and the
// memory traffic of a training step. Nanoseconds for a pair of allocate and free; run it pinned to
// a core.

#include <cstdlib>
#include <random>
#include <vector>

#include "memory/caching_pool.hpp"
#include "support/measure.hpp"
#include "support/report.hpp"

namespace {

using namespace lockstep;
using Pool = CachingPool<HostUpstream>;

struct OfPool {
  Pool& pool;
  MemoryBlock* allocate(std::size_t bytes) { return pool.allocate(bytes, {}); }
  void free(MemoryBlock* block) { pool.deallocate(block); }
};

struct OfMalloc {
  void* allocate(std::size_t bytes) {
    void* volatile memory = std::malloc(bytes);  // or the compiler removes the pair
    return memory;
  }
  void free(void* memory) { std::free(memory); }
};

/// Activations that stay until backward, temporaries that do not, gradients that stay on.
/// @return pairs of allocate and free.
template <class Source>
int train_step(Source source, const std::vector<std::size_t>& layers) {
  std::vector<decltype(source.allocate(1))> activations, gradients;
  for (const std::size_t bytes : layers) {
    auto temporary = source.allocate(bytes / 2 + 1);
    activations.push_back(source.allocate(bytes));
    source.free(temporary);
  }
  for (std::size_t i = layers.size(); i-- > 0;) {
    gradients.push_back(source.allocate(layers[i] / 3 + 1));
    auto flowing = source.allocate(layers[i]);
    source.free(activations[i]);
    source.free(flowing);
  }
  for (auto gradient : gradients) source.free(gradient);
  return static_cast<int>(4 * layers.size());
}

template <class OnPool, class OnMalloc>
void compare(const benchmark::Report& report, const char* name, int pairs, OnPool&& on_pool,
             OnMalloc&& on_malloc) {
  const double pool = benchmark::measure(on_pool).median * 1e9 / pairs;
  const double malloc = benchmark::measure(on_malloc).median * 1e9 / pairs;
  report.add({{"case", name}, {"ns", pool}, {"malloc_ns", malloc}, {"of_malloc", pool / malloc}});
}

void hit(const benchmark::Report& report, const char* name, Pool& pool, std::size_t bytes) {
  compare(
      report, name, 1, [&] { pool.deallocate(pool.allocate(bytes, {})); },
      [&] {
        OfMalloc source;
        source.free(source.allocate(bytes));
      });
}

}  // namespace

int main(int argc, char** argv) {
  const benchmark::Report report("pool", argc, argv);
  Pool pool({}, device_runtime(DeviceType::cpu), cpu, {.granularity = 64});
  hit(report, "hit, 256 B", pool, 256);
  hit(report, "hit, 64 KiB", pool, std::size_t{64} << 10);
  hit(report, "hit, 4 MiB", pool, std::size_t{4} << 20);

  std::minstd_rand random(1);
  std::vector<std::size_t> layers(100);
  for (std::size_t& bytes : layers) bytes = std::size_t{256} << random() % 16;
  const int pairs = train_step(OfPool{pool}, layers);
  compare(
      report, "training step, 256 B to 8 MiB", pairs, [&] { train_step(OfPool{pool}, layers); },
      [&] { train_step(OfMalloc{}, layers); });
}
