// Real products of float32, float64, float16 and bfloat16 matrices, by the BLAS in torch's CPU library.

#include "product.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <vector>

namespace stand_in {

std::int64_t size_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_64F:
      return 8;
    case CUDA_R_32F:
      return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    default:
      return 0;
  }
}

namespace {

template <class T>
T load(const void* data, cudaDataType type, std::int64_t index) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<T>(static_cast<const double*>(data)[index]);
    case CUDA_R_32F:
      return static_cast<T>(static_cast<const float*>(data)[index]);
    case CUDA_R_16F:
      return static_cast<T>(static_cast<const _Float16*>(data)[index]);
    default: {
      const std::uint32_t bits = std::uint32_t{static_cast<const std::uint16_t*>(data)[index]} << 16;
      float value;
      std::memcpy(&value, &bits, sizeof(value));
      return value;
    }
  }
}

template <class T>
void store(void* data, cudaDataType type, std::int64_t index, T value) {
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(data)[index] = value;
      return;
    case CUDA_R_32F:
      static_cast<float*>(data)[index] = static_cast<float>(value);
      return;
    case CUDA_R_16F:
      static_cast<_Float16*>(data)[index] = static_cast<_Float16>(value);
      return;
    default: {
      const auto narrow = static_cast<float>(value);
      std::uint32_t bits;
      std::memcpy(&bits, &narrow, sizeof(bits));
      const std::uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;  // to the nearest, ties to even
      static_cast<std::uint16_t*>(data)[index] = static_cast<std::uint16_t>(narrow == narrow ? rounded : 0x7fc0);
    }
  }
}

template <class T>
using Gemm = void(const char*, const char*, const int*, const int*, const int*, const T*, const T*, const int*,
                  const T*, const int*, const T*, T*, const int*);

// The host's own product, of the library that has loaded this one.
template <class T>
Gemm<T>* gemm() {
  static auto* const found = reinterpret_cast<Gemm<T>*>(
      dlsym(dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD), sizeof(T) == 8 ? "dgemm_" : "sgemm_"));
  return found;
}

template <class T>
std::vector<T> unpack(const Matrix& matrix, std::int64_t batch, std::int64_t rows, std::int64_t columns) {
  std::vector<T> values(static_cast<std::size_t>(rows * columns));
  for (std::int64_t column = 0; column < columns; ++column) {
    const std::int64_t from = batch * matrix.stride + column * matrix.ld;
    for (std::int64_t row = 0; row < rows; ++row) {
      values[column * rows + row] = load<T>(matrix.data, matrix.type, from + row);
    }
  }
  return values;
}

template <class T>
void multiply(const Product& product, std::int64_t batch) {
  const auto [m, n, k] = std::tuple(product.m, product.n, product.k);
  const std::int64_t a_rows = product.a.is_transposed ? k : m, b_rows = product.b.is_transposed ? n : k;
  const std::vector<T> a = unpack<T>(product.a, batch, a_rows, m * k / std::max<std::int64_t>(a_rows, 1));
  const std::vector<T> b = unpack<T>(product.b, batch, b_rows, k * n / std::max<std::int64_t>(b_rows, 1));
  // where beta is 0, c is not read: it may hold NaN
  std::vector<T> d = product.beta == 0 ? std::vector<T>(m * n) : unpack<T>(product.c, batch, m, n);
  const int sizes[] = {static_cast<int>(m), static_cast<int>(n), static_cast<int>(k)};
  const int a_ld = std::max(1, static_cast<int>(a_rows)), b_ld = std::max(1, static_cast<int>(b_rows));
  const int d_ld = std::max(1, sizes[0]);
  const T alpha = static_cast<T>(product.alpha), beta = static_cast<T>(product.beta);
  gemm<T>()(product.a.is_transposed ? "T" : "N", product.b.is_transposed ? "T" : "N", &sizes[0], &sizes[1], &sizes[2],
            &alpha, a.data(), &a_ld, b.data(), &b_ld, &beta, d.data(), &d_ld);
  for (std::int64_t column = 0; column < n; ++column) {
    for (std::int64_t row = 0; row < m; ++row) {
      const T added = product.bias == nullptr ? T{} : load<T>(product.bias, product.bias_type, row);
      store<T>(const_cast<void*>(product.d.data), product.d.type,
               batch * product.d.stride + column * product.d.ld + row, d[column * m + row] + added);
    }
  }
}

// Whether the pretended device holds all elements of a matrix.
bool is_on_device(const Matrix& matrix, std::int64_t rows, std::int64_t columns, std::int64_t batches) {
  if (rows == 0 || columns == 0 || batches == 0) {
    return true;
  }
  const void* begin = nullptr;
  const Block* const block = block_of(matrix.data, begin);
  const std::int64_t last = (batches - 1) * matrix.stride + (columns - 1) * matrix.ld + rows;
  const auto offset = static_cast<const char*>(matrix.data) - static_cast<const char*>(begin);
  return block != nullptr && block->kind == Kind::device &&
         offset + last * size_of(matrix.type) <= static_cast<std::int64_t>(block->bytes);
}

}  // namespace

double scale(const void* value, cudaDataType type) { return load<double>(value, type, 0); }

cublasStatus_t run(const Product& product, cudaStream_t stream) {
  const auto [m, n, k] = std::tuple(product.m, product.n, product.k);
  const auto fits = [&](const Matrix& matrix, std::int64_t rows, std::int64_t columns) {
    return matrix.ld >= std::max<std::int64_t>(1, rows) && is_on_device(matrix, rows, columns, product.batches);
  };
  for (const Matrix* one : {&product.a, &product.b, &product.c, &product.d}) {
    if (size_of(one->type) == 0) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
  }
  const bool are_valid = m >= 0 && n >= 0 && k >= 0 && product.batches >= 0 &&
                         fits(product.a, product.a.is_transposed ? k : m, product.a.is_transposed ? m : k) &&
                         fits(product.b, product.b.is_transposed ? n : k, product.b.is_transposed ? k : n) &&
                         (product.beta == 0 || fits(product.c, m, n)) && fits(product.d, m, n) &&
                         (product.bias == nullptr || fits({product.bias, product.bias_type, m}, m, 1));
  if (!are_valid) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  submit(stream, [product] {
    for (std::int64_t batch = 0; batch < product.batches; ++batch) {
      product.d.type == CUDA_R_64F ? multiply<double>(product, batch) : multiply<float>(product, batch);
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace stand_in
