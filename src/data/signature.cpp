#include "data/signature.hpp"

#include <algorithm>

#include "lockstep/data/dataset.hpp"
#include "lockstep/io/crc32c.hpp"

namespace lockstep::data {

std::uint64_t signature_of_bytes(std::span<const std::byte> bytes) {
  constexpr std::size_t whole = std::size_t{64} << 20, block = 4096, blocks = 1024;
  if (bytes.size() <= whole) return signature_of("whole", bytes.size(), io::crc32c(bytes));
  std::uint32_t checksum = 0;
  for (std::size_t i = 0; i < blocks; ++i) {  // the last one ends with the bytes
    const std::size_t begin = (bytes.size() - block) / (blocks - 1) * i;
    const std::size_t from = i + 1 < blocks ? begin : bytes.size() - block;
    checksum = io::crc32c(bytes.subspan(from, block), checksum);
  }
  return signature_of("blocks", bytes.size(), checksum);
}

std::uint64_t signature_of_tensor(const Tensor& tensor) {
  std::uint64_t signature = signature_of(
      "tensor", static_cast<int>(tensor.dtype()),
      signature_of_bytes({static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}));
  for (const std::int64_t size : tensor.shape()) signature = signature_of("of", signature, size);
  return signature;
}

std::uint64_t order_signature(std::int64_t size, std::uint64_t signature, std::uint64_t order) {
  return std::max<std::uint64_t>(1, signature_of("data", size, signature, order));
}

}  // namespace lockstep::data
