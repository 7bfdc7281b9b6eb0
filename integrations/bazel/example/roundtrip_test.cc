#include <brotli/decode.h>
#include <brotli/encode.h>

#include <string>

#include "gtest/gtest.h"

// Packs and unpacks texts of several sizes.
TEST(Brotli, RoundTrip) {
	for (size_t n : {1, 100, 10000}) {
		std::string text;
		while (text.size() < n)
			text += std::to_string(text.size()) + " ";
		std::string packed(BrotliEncoderMaxCompressedSize(text.size()), 0);
		size_t size = packed.size();
		ASSERT_TRUE(BrotliEncoderCompress(5, BROTLI_DEFAULT_WINDOW, BROTLI_MODE_TEXT, text.size(),
			reinterpret_cast<const uint8_t *>(text.data()), &size, reinterpret_cast<uint8_t *>(&packed[0])));
		std::string back(text.size(), 0);
		size_t got = back.size();
		EXPECT_EQ(BROTLI_DECODER_RESULT_SUCCESS, BrotliDecoderDecompress(size,
			reinterpret_cast<const uint8_t *>(packed.data()), &got, reinterpret_cast<uint8_t *>(&back[0])));
		EXPECT_EQ(text, back);
	}
}
