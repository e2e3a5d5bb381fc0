package com.example.delegation;

import com.example.delegation.client.ApiClient;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Mutual TLS and access tokens for the generated client. */
final class ServiceConnection {
  private static final Duration RENEW_BEFORE_END = Duration.ofSeconds(60);
  private static final ObjectMapper JSON = new ObjectMapper();

  private ServiceConnection() {}

  /** Returns a client of the service that sends the certificate and a token with each request. */
  static ApiClient open(String edgeUrl, SSLContext tls, Tokens tokens) {
    ApiClient client = new ApiClient();
    client.updateBaseUri(edgeUrl);
    client.setHttpClientBuilder(
        HttpClient.newBuilder()
            .sslContext(tls)
            .version(HttpClient.Version.HTTP_1_1)
            .connectTimeout(Duration.ofSeconds(5)));
    // Longer than a synchronous request lasts in the service (25 s by default) and its front (29 s).
    client.setReadTimeout(Duration.ofSeconds(35));
    client.setRequestInterceptor(
        request -> request.setHeader("Authorization", "Bearer " + tokens.current()));
    return client;
  }

  /**
   * Reads the client certificate with its key, and the authorities of the service's certificate, from PKCS12 files.
   *
   * <p>Call it again, and make a new ApiClient, when the files change: certificates are rotated.
   */
  static SSLContext mutualTls(Path keyStore, Path trustStore, char[] password)
      throws GeneralSecurityException, IOException {
    KeyManagerFactory own = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
    own.init(read(keyStore, password), password);
    TrustManagerFactory trusted =
        TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trusted.init(read(trustStore, password));
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(own.getKeyManagers(), trusted.getTrustManagers(), null);
    return context;
  }

  private static KeyStore read(Path file, char[] password) throws GeneralSecurityException, IOException {
    KeyStore store = KeyStore.getInstance("PKCS12");
    try (InputStream content = Files.newInputStream(file)) {
      store.load(content, password);
    }
    return store;
  }

  /** Access tokens of an OAuth2 issuer (client credentials), each used until shortly before it ends. */
  static final class Tokens {
    private final HttpClient http;
    private final HttpRequest request;
    private String token;
    private Instant renewAt = Instant.EPOCH;

    Tokens(HttpClient http, String tokenUrl, String clientId, String clientSecret, String scope) {
      String basic = clientId + ":" + clientSecret;
      String form = "grant_type=client_credentials&scope=" + URLEncoder.encode(scope, StandardCharsets.UTF_8);
      this.http = http;
      this.request =
          HttpRequest.newBuilder(URI.create(tokenUrl))
              .timeout(Duration.ofSeconds(10))
              .header("Authorization", "Basic " + Base64.getEncoder().encodeToString(basic.getBytes(StandardCharsets.UTF_8)))
              .header("Content-Type", "application/x-www-form-urlencoded")
              .POST(HttpRequest.BodyPublishers.ofString(form))
              .build();
    }

    /** Returns a token; throws IllegalStateException, which names neither token nor secret, if there is none. */
    synchronized String current() {
      if (token == null || Instant.now().isAfter(renewAt)) {
        JsonNode answer = issued();
        token = answer.get("access_token").asText();
        long seconds = answer.path("expires_in").asLong(300);
        renewAt = Instant.now().plusSeconds(seconds).minus(RENEW_BEFORE_END);
      }
      return token;
    }

    /** Has the next request get a new token. */
    synchronized void forget() {
      token = null;
    }

    private JsonNode issued() {
      try {
        HttpResponse<String> answer = http.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200) {
          throw new IllegalStateException("the issuer of tokens answered " + answer.statusCode());
        }
        return JSON.readTree(answer.body());
      } catch (IOException unreachable) {
        throw new IllegalStateException("the issuer of tokens did not answer", unreachable);
      } catch (InterruptedException interrupted) {
        Thread.currentThread().interrupt();
        throw new IllegalStateException("interrupted", interrupted);
      }
    }
  }
}
