// The caching pool beside malloc: allocate and free of one size again and again (a hit), and the
// memory traffic of a training step. Nanoseconds for a pair of allocate and free; run it pinned to
// a core.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <latch>
#include <random>
#include <thread>
#include <vector>

#include "memory/caching_pool.hpp"
#include "support/device.hpp"
#include "support/measure.hpp"

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

/// Hits from several threads at once, each with blocks of its own: nanoseconds that a pair keeps a
/// core for, waiting for each other included.
template <class Source>
double shared_hit(Source source, std::size_t bytes, int threads) {
  constexpr int pairs = 500'000;
  std::latch ready(threads + 1);
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i)
    running.emplace_back([&, source]() mutable {
      source.free(source.allocate(bytes));
      ready.arrive_and_wait();
      for (int pair = 0; pair < pairs; ++pair) source.free(source.allocate(bytes));
    });
  ready.arrive_and_wait();
  const auto start = std::chrono::steady_clock::now();
  for (std::thread& thread : running) thread.join();
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
  const int cores = std::min<int>(threads, static_cast<int>(std::thread::hardware_concurrency()));
  return spent.count() * cores / (static_cast<double>(pairs) * threads);
}

void hit_by_threads(const benchmark::Report& report, const char* name, Pool& pool,
                    std::size_t bytes) {
  constexpr int threads = 8;
  const double of_pool = shared_hit(OfPool{pool}, bytes, threads);
  const double of_malloc = shared_hit(OfMalloc{}, bytes, threads);
  report.add({{"case", name},
              {"ns", of_pool},
              {"malloc_ns", of_malloc},
              {"of_malloc", of_pool / of_malloc}});
}

}  // namespace

int main(int argc, char** argv) {
  const benchmark::Report report("pool", argc, argv);
  if (benchmark::has_no_gpu_case(report, argc, argv, "it times the pool over the host's memory"))
    return 0;
  Pool pool({}, device_runtime(DeviceType::cpu), cpu, {.granularity = 64});
  hit(report, "hit, 256 B", pool, 256);
  hit(report, "hit, 64 KiB", pool, std::size_t{64} << 10);
  hit(report, "hit, 4 MiB", pool, std::size_t{4} << 20);

  hit_by_threads(report, "hit, 256 B, 8 threads at once", pool, 256);
  hit_by_threads(report, "hit, 64 KiB, 8 threads at once", pool, std::size_t{64} << 10);
  hit_by_threads(report, "hit, 4 MiB, 8 threads at once", pool, std::size_t{4} << 20);

  std::minstd_rand random(1);
  std::vector<std::size_t> layers(100);
  for (std::size_t& bytes : layers) bytes = std::size_t{256} << random() % 16;
  const int pairs = train_step(OfPool{pool}, layers);
  compare(
      report, "training step, 256 B to 8 MiB", pairs, [&] { train_step(OfPool{pool}, layers); },
      [&] { train_step(OfMalloc{}, layers); });
}
